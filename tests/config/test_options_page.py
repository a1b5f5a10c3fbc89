"""The page of settings is that of the declarations, and lists all of them."""

import dataclasses

from icrl.config.compose import load_config
from icrl.config.env_schema import ENVS
from icrl.config.options import stages_of, walk
from icrl.config.options_page import page, table
from icrl.config.paths import PROJECT
from icrl.config.training_schema import SOURCES


def test_the_page_in_the_docs_is_not_stale() -> None:
    assert (PROJECT / "docs/settings.md").read_text() == page() + "\n", "run `make docs`"


def test_every_option_has_a_row_with_its_meaning_default_and_stages() -> None:
    for preset in ("source=a2c", "source=dqn", "env=bandit", "env=gymnasium"):
        config = load_config([preset])
        rows = {row.split(" | ")[0].strip("| `"): row for row in table(config).splitlines() if row.startswith("| `")}
        assert set(rows) == {key for key, _, _ in walk(config)}
        for key, value, field in walk(config):
            cells = rows[key].replace("\\|", "/").strip("|").split(" | ")
            assert len(cells) == 6
            assert cells[1] == field.metadata["meaning"].replace("|", "/")
            assert cells[3].startswith(f"`{str(value)[:100]}")
            assert cells[4].strip() == stages_of(config, key) != ""
            assert ("yes" in cells[5]) == field.metadata["may_change"]


def test_the_page_has_the_options_of_every_world_and_source() -> None:
    shown = {row.split(" | ")[0].strip("| `") for row in page().splitlines() if row.startswith("| `")}
    for group, kinds in (("env", ENVS), ("source", SOURCES)):
        for kind in kinds.values():
            assert {f"{group}.{field.name}" for field in dataclasses.fields(kind)} <= shown
