from icrl.__main__ import run  # see icrl/programs/study.py

if __name__ == "__main__":
    run("study")
