from icrl.__main__ import run  # see icrl/extensions/exported/programs/export_model.py

if __name__ == "__main__":
    run("export_model", "exported")
