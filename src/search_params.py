"""`python -m src.search_params`, from a clone; see `icrl.programs.search_params`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("search_params")
