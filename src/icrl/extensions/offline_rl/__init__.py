"""Extension: offline RL in context: values learned from histories, and policies from values (`train_ilql`,
`extract_policy`).

The preset `offline=reference` takes the reference's optimizer from the extension `optimizers`; curves of a critic are
drawn by `curves`; target networks are those of `value_sources`.
"""

NEEDS = ("optimizers", "curves", "value_sources")
