"""Extension: offline RL in context: values of histories, and policies from them: `train_ilql`, `extract_policy`.

The preset `offline=reference` takes the reference's optimizer from the extension `optimizers`; curves of a critic are
drawn as those of `curves`.
"""

NEEDS = ("optimizers", "curves")
