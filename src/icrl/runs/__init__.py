"""Needs of every run besides its work: files, checkpoints, metrics, processes."""

SHARED = ("train_gpt", "finetune", "train_ilql", "extract_policy")  # programs that several processes can run together
