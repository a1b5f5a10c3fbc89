"""Evaluation in context. Start with `in_context.evaluate_policy`, which plays any policy in any environment."""
