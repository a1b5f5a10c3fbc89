from icrl.__main__ import run  # see icrl/extensions/formats/programs/export_histories.py

if __name__ == "__main__":
    run("export_histories", "formats")
