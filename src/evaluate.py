"""`python -m src.evaluate`, from a clone; see `icrl.programs.evaluate`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("evaluate")
