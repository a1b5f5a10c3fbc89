from icrl.__main__ import run  # see icrl/programs/finetune.py

if __name__ == "__main__":
    run("finetune")
