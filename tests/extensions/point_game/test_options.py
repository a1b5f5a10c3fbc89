"""Options of the point game and of `train_players`: presets, refusals, the pages."""

import json
from pathlib import Path

import pytest
from pages import check_options_of_table, rows_of, run_blocks
from refusals import check_refusal, check_table, refusals

from icrl.app.command_line import help_text
from icrl.app.compose import compose_config, load_config, presets_of
from icrl.config.options import walk
from icrl.contracts import ConfigError
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.players.options import FIXED_AGENTS, FIXED_HOSTS, PlayersConfig
from icrl.extensions.point_game.programs import train_players
from icrl.runs.files import PROJECT, check_same, write_json
from icrl.runs.writers import writer_classes

LOADERS = {
    "point_game": lambda overrides: load_config(["experiment=point_game", "evaluation.num_episodes=4", *overrides]),
    "players": lambda overrides: compose_config(PlayersConfig, overrides),
}


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(LOADERS[section], overrides, named)


def test_options_that_only_nearly_conflict_are_allowed() -> None:
    for options in (["env.role=agent", "env.opponents=[zeillinger]"], ["env.max_episode_steps=25"],
                    ["env.dimensions=[2,9,3]", "env.max_episode_steps=10"]):  # fmt: skip
        LOADERS["point_game"](options)


@pytest.mark.parametrize("preset", presets_of("players"))
def test_presets_of_players_compose_and_can_be_recorded(preset: str) -> None:
    config = compose_config(PlayersConfig, [f"players={preset}"])
    check_same(config, json.loads(json.dumps(config.model_dump())), config.model_dump(), "here")


def test_options_of_a_fixed_player_are_not_compared_and_the_fixed_players_are_those_of_the_game() -> None:
    fixed = ["host.player=zeillinger", "agent.opponents=host", "host.opponents=[]", "host.net_arch=[{width: 8}]"]
    assert compose_config(PlayersConfig, fixed).learning == ["agent"]
    assert tuple(HOSTS) == FIXED_HOSTS and tuple(AGENTS) == FIXED_AGENTS


def test_presets_seeds_and_help_are_those_of_other_programs(tmp_path: Path) -> None:
    (tmp_path / "players").mkdir()
    (tmp_path / "players/mine.yaml").write_text("# @package _global_\ndefaults: [tiny]\nname: ours\n")
    mine = compose_config(PlayersConfig, [f"presets={tmp_path}", "players=mine"])
    assert (mine.name, mine.game) == ("ours", compose_config(PlayersConfig, ["players=tiny"]).game)
    asked = [f"root={tmp_path}", "name=a", "seed=null"]
    write_json(tmp_path / "logs/a/players/run.json", {"sessions": [{"config": {"seed": 5}}]})
    assert compose_config(PlayersConfig, asked).seed == 5
    assert "  host.epsilon" in help_text("train_players", "", PlayersConfig, ["host"])


def test_the_pages_have_every_option() -> None:
    config = compose_config(PlayersConfig, [])
    check_table((PROJECT / "docs/settings.md").read_text(), config)
    check_options_of_table(rows_of("point_game.md", "### Options"), {key for key, _, _ in walk(config)})


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_blocks("docs/point_game.md", tmp_path, monkeypatch)
    assert found["reward"] in (-1, 0, 1) and found["games"].num_envs == 64


def test_an_absent_library_is_refused_before_any_work(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(writer_classes()["tensorboard"], "library", "absent")
    with pytest.raises(ConfigError, match="summaries.writer=tensorboard needs the package absent"):
        train_players.main(
            compose_config(PlayersConfig, ["players=tiny", f"root={tmp_path}", "summaries.writer=tensorboard"])
        )
    assert all(path.name == ".lock" for path in tmp_path.rglob("*") if path.is_file())
