"""Extension: in-context TD3+BC, offline reinforcement learning of continuous actions from histories (`train_td3_bc`).

Actions are squashed as by `vectors`; target networks are those of `value_sources`.
"""

NEEDS = ("value_sources", "vectors")
