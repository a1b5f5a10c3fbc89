from icrl.__main__ import run  # see icrl/programs/train_players.py

if __name__ == "__main__":
    run("train_players")
