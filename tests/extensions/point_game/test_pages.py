"""Page of the point game: its blocks run as they stand, and its table names options that exist."""

from pathlib import Path

import pytest
from pages import check_options_of_table, rows_of, run_blocks

from icrl.app.compose import compose_config
from icrl.config.options import walk
from icrl.extensions.point_game.players.options import PlayersConfig


def test_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    found = run_blocks("docs/point_game.md", tmp_path, monkeypatch)
    assert found["done"] and found["games"].num_envs == 64


def test_every_option_of_the_table_exists() -> None:
    known = {key for key, _, _ in walk(compose_config(PlayersConfig, []))}
    check_options_of_table(rows_of("point_game.md", "### Options"), known)
