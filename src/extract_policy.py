from icrl.__main__ import run  # see icrl/extensions/offline_rl/programs/extract_policy.py

if __name__ == "__main__":
    run("extract_policy", "offline_rl")
