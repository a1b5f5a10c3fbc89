"""`python -m src.export_histories`, from a clone; see `icrl.programs.export_histories`."""

from icrl.__main__ import run

if __name__ == "__main__":
    run("export_histories")
