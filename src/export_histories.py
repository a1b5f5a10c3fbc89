"""`python -m src.export_histories`, from a clone; see `icrl.programs.export_histories`."""

from icrl.programs.export_histories import command

if __name__ == "__main__":
    command()
