"""Options of the point game and of `train_players`: presets, refusals, the pages."""

import json
from pathlib import Path

import pytest
from pages import check_options_of_table, rows_of, run_blocks
from refusals import check_refusal, check_table, refusals

from icrl.app.compose import compose_config, load_config, presets_of
from icrl.config.options import walk
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.runs.files import PROJECT, check_same

LOADERS = {
    "point_game": lambda overrides: load_config(["experiment=point_game", "evaluation.num_episodes=4", *overrides]),
    "players": lambda overrides: compose_config(PlayersConfig, overrides),
}


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(LOADERS[section], overrides, named)


@pytest.mark.parametrize("preset", presets_of("players"))
def test_presets_of_players_compose_and_can_be_recorded(preset: str) -> None:
    config = compose_config(PlayersConfig, [f"players={preset}"])
    check_same(config, json.loads(json.dumps(config.model_dump())), config.model_dump(), "here")


def test_options_of_a_fixed_player_are_not_compared() -> None:
    fixed = ["host.player=zeillinger", "agent.opponents=host", "host.opponents=[]", "host.net_arch=[{width: 8}]"]
    assert compose_config(PlayersConfig, fixed).learning == ["agent"]


def test_the_pages_have_every_option() -> None:
    config = compose_config(PlayersConfig, [])
    check_table((PROJECT / "docs/settings.md").read_text(), config)
    check_options_of_table(rows_of("point_game.md", "### Options"), {key for key, _, _ in walk(config)})


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_blocks("docs/point_game.md", tmp_path, monkeypatch)
    assert found["reward"] in (-1, 0, 1) and found["games"].num_envs == 64
