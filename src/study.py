from icrl.__main__ import run  # see icrl/extensions/studies/programs/study.py

if __name__ == "__main__":
    run("study", "studies")
