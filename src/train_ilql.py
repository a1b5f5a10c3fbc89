"""`python -m src.train_ilql`, from a clone; see `icrl.programs.train_ilql`."""

from icrl.programs.train_ilql import command

if __name__ == "__main__":
    command()
