"""`python -m src.extract_policy`, from a clone; see `icrl.programs.extract_policy`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("extract_policy")
