"""`python -m src.train_agents`, from a clone; see `icrl.programs.train_agents`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("train_agents")
