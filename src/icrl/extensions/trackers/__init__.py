"""Extension: curves on Weights & Biases and MLflow, `summaries.writer=wandb` and `summaries.writer=mlflow`."""
