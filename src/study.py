"""`python -m src.study`, from a clone; see `icrl.programs.study`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("study")
