"""`python -m src.upgrade`, from a clone; see `icrl.programs.upgrade`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("upgrade")
