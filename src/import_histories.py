from icrl.__main__ import run  # see icrl/extensions/formats/programs/import_histories.py

if __name__ == "__main__":
    run("import_histories", "formats")
