"""`python -m src.upgrade`, from a clone; see `icrl.programs.upgrade`."""

from icrl.programs.upgrade import command

if __name__ == "__main__":
    command()
