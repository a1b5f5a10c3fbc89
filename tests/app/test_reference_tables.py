"""The table "settings of the reference, and ours" in the docs: its options exist."""

from pages import check_options_of_table, rows_of

from icrl.app.compose import load_config, presets_of
from icrl.config.options import walk

CHOSEN = [f"{group}={name}" for group in ("source", "optimizer") for name in presets_of(group)]


def test_every_option_exists() -> None:
    rows = rows_of("trainer.md", "## Settings of the reference, and ours")
    check_options_of_table(rows, {key for one in CHOSEN for key, _, _ in walk(load_config([one]))})
