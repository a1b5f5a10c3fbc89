from icrl.__main__ import run  # see icrl/programs/pipeline.py

if __name__ == "__main__":
    run("pipeline")
