from icrl.__main__ import run  # see icrl/programs/evaluate.py

if __name__ == "__main__":
    run("evaluate")
