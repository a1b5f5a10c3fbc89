from icrl.__main__ import run  # see icrl/extensions/upgrade/programs/upgrade.py

if __name__ == "__main__":
    run("upgrade", "upgrade")
