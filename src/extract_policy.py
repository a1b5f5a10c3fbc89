from icrl.__main__ import run  # see icrl/programs/extract_policy.py

if __name__ == "__main__":
    run("extract_policy")
