"""`python -m src.train_gpt`, from a clone; see `icrl.programs.train_gpt`."""

from icrl.programs.train_gpt import command

if __name__ == "__main__":
    command()
