"""`python -m src.search_params`, from a clone; see `icrl.programs.search_params`."""

from icrl.programs.search_params import command

if __name__ == "__main__":
    command()
