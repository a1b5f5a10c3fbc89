"""Services that every run needs: files, checkpoints, metrics, processes."""

SHARED = {"train_gpt", "finetune"}  # programs that several processes can run together; an extension adds its own
