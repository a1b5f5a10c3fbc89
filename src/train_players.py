"""`python -m src.train_players`, from a clone; see `icrl.programs.train_players`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("train_players")
