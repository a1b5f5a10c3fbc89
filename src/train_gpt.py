"""`python -m src.train_gpt`, from a clone; see `icrl.programs.train_gpt`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("train_gpt")
