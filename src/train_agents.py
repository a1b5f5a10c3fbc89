"""`python -m src.train_agents`, from a clone; see `icrl.programs.train_agents`."""

from icrl.programs.train_agents import command

if __name__ == "__main__":
    command()
