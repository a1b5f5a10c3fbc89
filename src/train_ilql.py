from icrl.__main__ import run  # see icrl/extensions/offline_rl/programs/train_ilql.py

if __name__ == "__main__":
    run("train_ilql", "offline_rl")
