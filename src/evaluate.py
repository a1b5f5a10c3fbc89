"""`python -m src.evaluate`, from a clone; see `icrl.programs.evaluate`."""

from icrl.programs.evaluate import command

if __name__ == "__main__":
    command()
