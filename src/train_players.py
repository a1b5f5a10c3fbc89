"""`python -m src.train_players`, from a clone; see `icrl.programs.train_players`."""

from icrl.programs.train_players import command

if __name__ == "__main__":
    command()
