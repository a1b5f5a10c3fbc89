from icrl.__main__ import run  # see icrl/extensions/point_game/programs/train_players.py

if __name__ == "__main__":
    run("train_players", "point_game")
