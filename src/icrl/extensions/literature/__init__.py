"""Extension: worlds and protocols of published meta-learning results, with references, for comparison with them."""

NEEDS = ("worlds", "exact", "trial_critic")
