"""Table of results: check evaluations of any run, and add or replace their rows.

python -m src.leaderboard [add=logs/NAME/evaluation] [KEY=VALUE ...]      -> logs/leaderboard/: leaderboard.md, .json

Damaged files, numbers that differ from the recorded episodes, held-out tasks that the model was trained on, and
evaluations of other tasks, of an intermediate update or of unfinished training are refused. `add=[FOLDER,FOLDER]` adds
several; those that differ only in seed and split make one row with an interval over them. A folder with an equals sign
is quoted twice: "add='logs/NAME/evaluation-policy=finetuned'". Without `add` the table is printed.
"""

from pathlib import Path

from icrl.evaluation.tables import aligned
from icrl.extensions.studies.leaderboard import MARKDOWN, add_rows, cells_of, checked, read_rows, rows_of
from icrl.extensions.studies.options import LeaderboardConfig
from icrl.runs.files import PROJECT

OPTIONS = LeaderboardConfig
LARGE = "the number of evaluations in add"


def main(config: LeaderboardConfig) -> Path:
    """Add the evaluations, if any are given, and print the table; returns its folder."""
    folder = PROJECT / config.root / "logs" / "leaderboard"
    if config.add:
        add_rows(folder, rows_of([checked(Path(path)) for path in config.add]))
    if rows := read_rows(folder):
        print(f"{aligned([cells[:-1] for cells in cells_of(rows)])}\n\nwith commands: {folder / MARKDOWN}")
    else:
        print(f"{folder} has no results yet: add=logs/NAME/evaluation adds those of an evaluation")
    return folder
