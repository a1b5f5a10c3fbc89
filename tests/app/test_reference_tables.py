"""The table "settings of the reference, and ours" in the docs: it has all settings, and its options exist."""

import re

from pages import check_options_of_table, rows_of

from icrl.app.compose import load_config, presets_of
from icrl.config.options import walk

CHOSEN = [f"{group}={name}" for group in ("source", "optimizer") for name in presets_of(group)]
ROWS = rows_of("trainer.md", "## Settings of the reference, and ours")
NUM_SETTINGS = 61  # of the reference trainer


def test_every_option_exists() -> None:
    check_options_of_table(ROWS, {key for one in CHOSEN for key, _, _ in walk(load_config([one]))})


def test_the_table_has_every_setting_of_the_reference_trainer() -> None:
    names = [name for row in ROWS for name in re.findall(r"`([a-z_]+)`", row[0])]
    assert len(names) == len({*names}) == NUM_SETTINGS
