"""Evaluation in context. Start with `in_context.play_episodes`, which plays any policy in any environment."""
