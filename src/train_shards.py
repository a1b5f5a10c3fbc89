from icrl.__main__ import run  # see icrl/extensions/scaling/programs/train_shards.py

if __name__ == "__main__":
    run("train_shards", "scaling")
