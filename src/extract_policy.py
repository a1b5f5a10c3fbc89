"""`python -m src.extract_policy`, from a clone; see `icrl.programs.extract_policy`."""

from icrl.programs.extract_policy import command

if __name__ == "__main__":
    command()
