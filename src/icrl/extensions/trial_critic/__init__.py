"""Extension: a value head and generalised advantages for trials, `finetune.gae_lambda`."""

NEEDS = ("ppo",)
