from icrl.__main__ import run  # see icrl/extensions/seeds/programs/train_seeds.py

if __name__ == "__main__":
    run("train_seeds", "seeds")
