"""Evaluation in context: the protocol, references, ablations, statistics and their reports.

Start with `evaluate_policy` in `in_context`, which plays any policy on tasks of any environment.
"""
