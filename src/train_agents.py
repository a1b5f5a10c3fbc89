from icrl.__main__ import run  # see icrl/programs/train_agents.py

if __name__ == "__main__":
    run("train_agents")
