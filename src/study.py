"""`python -m src.study`, from a clone; see `icrl.programs.study`."""

from icrl.programs.study import command

if __name__ == "__main__":
    command()
