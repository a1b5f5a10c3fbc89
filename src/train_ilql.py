"""`python -m src.train_ilql`, from a clone; see `icrl.programs.train_ilql`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("train_ilql")
