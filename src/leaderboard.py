from icrl.__main__ import run  # see icrl/extensions/studies/programs/leaderboard.py

if __name__ == "__main__":
    run("leaderboard", "studies")
