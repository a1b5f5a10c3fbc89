"""Objectives: (model, batch) -> terms of the loss, metrics. One file per objective, each with its equation and source.

Programs import one objective class each; the training loop knows the protocol `contracts.Objective` alone.
"""
