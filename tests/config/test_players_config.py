"""Options of `train_players`: every mistake is an error that names the field, before any work."""

import dataclasses
import json

import pytest
from omegaconf import OmegaConf

from icrl.config.command_line import help_text
from icrl.config.compose import CONF, load_players_config
from icrl.config.options import stages_of, walk
from icrl.config.options_page import table
from icrl.config.players_schema import FIXED_AGENTS, FIXED_HOSTS, PlayersConfig
from icrl.contracts import ConfigError
from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.programs.train_players import main
from icrl.runs.device import recorded
from icrl.runs.identity import check_same

DEFAULT = load_players_config()
PRESETS = sorted(path.stem for path in (CONF / "players").glob("*.yaml"))


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_players_config(overrides)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("sead=1", "sead"),
        ("host.gamma=0.9", "gamma"),
        ("game.dimensions=3", "dimensions"),
        ("+replay.deactivate=true", "deactivate"),
        ("players=nope", "nope"),
        ("env.size=3", "env.size"),
        ("~host.discount", "no value for host.discount"),
        ("~training.num_games", "no value for training.num_games"),
        ("~seed", "no value for seed"),
        ("host.epsilon=???", "no value for host.epsilon"),
    ],
)
def test_an_unknown_or_missing_key_is_refused_by_name(override: str, named: str) -> None:
    assert named in refusal(override)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("game.dimension=1", "game.dimension=1: must be int >= 2 and <= 12"),
        ("host.net_arch=64", "host.net_arch=64: must be a list of mappings"),
        ("host.opponents={a: 1}", "host.opponents={'a': 1}: must be names among agent, random, first, last"),
        ("host.epsilon=[1,2]", "host.epsilon: [1, 2]: must be a finite number or a mapping with kind"),
        ("game.dimension=13", "game.dimension=13: must be int >= 2 and <= 12"),
        ("game.max_num_points=1", "game.max_num_points=1: must be int >= 2 and <= 1024"),
        ("game.max_value=0", "game.max_value=0: must be int >= 1 and <= 1048576"),
        ("game.max_episode_steps=0", "game.max_episode_steps=0: must be int >= 1"),
        ("training.num_updates=0", "training.num_updates=0: must be int >= 1"),
        ("training.max_gradient_norm=0", "training.max_gradient_norm=0.0: must be float > 0"),
        ("replay.kind=base", "replay.kind=base: must be one of uniform, prioritised"),
        ("replay.eps=0", "replay.eps=0: must be float, or a schedule of such values, > 0"),
        ("host.player=first", f"host.player=first: must be one of dqn, {', '.join(FIXED_HOSTS)}"),
        ("agent.player=nobody", f"agent.player=nobody: must be one of dqn, {', '.join(FIXED_AGENTS)}"),
        ("host.opponents=[host]", f"host.opponents=['host']: must be names among agent, {', '.join(FIXED_AGENTS)}"),
        ("agent.opponents=last", f"agent.opponents=['last']: must be names among host, {', '.join(FIXED_HOSTS)}"),
        ("agent.discount=1.5", "agent.discount=1.5: must be float >= 0 and <= 1"),
        ("agent.target_update_rate=0", "agent.target_update_rate=0.0: must be float > 0 and <= 1"),
        ("host.optimizer=lamb", "host.optimizer=lamb: must be one of adam, sgd"),
        ("host.epsilon=1.5", "host.epsilon=1.5: must be float, or a schedule of such values, >= 0 and <= 1"),
        ("host.epsilon={kind: exponential}", "host.epsilon: progress=None: must be one of"),
        ("host.net_arch=[8]", "host.net_arch=[8]: must be a list of mappings"),
        ("host.net_arch=[{width: 8, b: 1}]", "host.net_arch[0].b: unknown key"),
        ("evaluation.confidence=1", "evaluation.confidence=1.0: must be float >= 0.5 and <= 0.999"),
        ("checkpoints.on_crash=maybe", "checkpoints.on_crash=maybe: must be one of save, skip, ask"),
    ],
)
def test_out_of_range_is_refused_with_field_value_and_what_is_allowed(override: str, message: str) -> None:
    assert refusal(override).startswith(message)


@pytest.mark.parametrize("override", ["game.reposition=1", "host.batch_size=many", "seed=1.5", "host.net_arch=8"])
def test_a_wrong_type_is_refused_by_name(override: str) -> None:
    assert refusal(override).startswith(override.partition("=")[0])


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        (["host.player=zeillinger", "agent.player=random"], ["host.player=zeillinger", "agent.player=random", "dqn"]),
        (["host.opponents=[]"], ["host.opponents=[]"]),
        (["agent.opponents=[host,host]"], ["agent.opponents", "once"]),
        (
            ["training.num_games=200", "replay.size=7999"],
            ["host.initial_rollout_length=10", "8000", "replay.size=7999"],
        ),
        (["agent.rollout_length=500"], ["agent.rollout_length=500", "128000", "replay.size=100000"]),
        (["host.batch_size=1", "host.net_arch=[{width: 3, normalization: batch}]"], ["host.batch_size=1", "net_arch"]),
        (["host.momentum=0.5"], ["host.momentum=0.5", "host.optimizer=adam", "give host.momentum=0.0"]),
        (["agent.optimizer=sgd"], ["agent.adam_beta1=0.9", "agent.optimizer=sgd", "give agent.adam_beta1=0.0"]),
        (["evaluation.eval_interval=3"], ["evaluation.num_evals=5", "evaluation.eval_interval=3"]),
        (["checkpoints.checkpoint_interval=3"], ["checkpoints.num_checkpoints", "checkpoints.checkpoint_interval=3"]),
        (["summaries.summary_interval=3"], ["summaries.num_summaries=100", "summaries.summary_interval=3"]),
        (["summaries.num_summaries=0", "summaries.layerwise=true"], ["summaries.layerwise=True", "num_summaries=0"]),
        (["summaries.num_summaries=0", "summaries.timing=true"], ["summaries.timing=True", "num_summaries=0"]),
        (["device.amp_dtype=bfloat16"], ["device.amp_dtype=bfloat16", "none"]),
        (["device.type=gpu"], ["device.type=gpu: must be auto, cpu, cuda or cuda:N"]),
        (
            ["host.opponents=[first,agent,agent]"],
            ["host.opponents=['first', 'agent', 'agent']", "agent is there 2 times"],
        ),
        (
            ["host.player=zeillinger", "agent.opponents=[host,zeillinger]"],
            ["agent.opponents=['host', 'zeillinger']", "zeillinger is there 2 times, host.player=zeillinger"],
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(overrides: list[str], fields: list[str]) -> None:
    message = refusal(*overrides)
    assert all(field in message for field in fields), message


def test_options_of_who_is_not_trained_are_not_compared() -> None:
    idle = ["host.opponents=[]", "host.net_arch=[{width: 8, residual: true}]"]
    config = load_players_config(["host.player=zeillinger", "agent.opponents=host", *idle])
    assert config.learning == ["agent"]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_compose(preset: str) -> None:
    """Each sets what it writes, schedules as a whole."""
    config = load_players_config([f"players={preset}"])
    written = OmegaConf.to_container(OmegaConf.load(CONF / f"players/{preset}.yaml"))
    values = {key: value for key, value, _ in walk(config)}
    for group, options in written.items():
        for key, value in options.items() if isinstance(options, dict) else [("", options)]:
            assert values[f"{group}.{key}" if key else group] == value
    check_same(config, json.loads(json.dumps(recorded(config))), recorded(config), "here")


def test_no_option_has_its_default_in_python_and_the_main_file_writes_all_out() -> None:
    written = OmegaConf.to_container(OmegaConf.load(CONF / "players.yaml"))
    kinds = {field.name: field.type for field in dataclasses.fields(PlayersConfig)}
    assert set(written) - {"defaults"} == set(kinds) - {"device"}
    for kind in (PlayersConfig, *(kind for kind in kinds.values() if dataclasses.is_dataclass(kind))):
        for field in dataclasses.fields(kind):
            assert field.default is field.default_factory is dataclasses.MISSING, field.name
    for name, kind in kinds.items():
        if isinstance(written.get(name), dict):
            assert set(written[name]) == {field.name for field in dataclasses.fields(kind)}, name


def test_the_fixed_players_are_those_of_the_game() -> None:
    assert tuple(HOSTS) == FIXED_HOSTS and tuple(AGENTS) == FIXED_AGENTS


def test_every_option_is_explained() -> None:
    text, rows = help_text("src.train_players", main.__doc__ or "", DEFAULT, ("players",)), table(DEFAULT)
    assert f"players={'|'.join(PRESETS)}" in text
    for key, value, field in walk(DEFAULT):
        assert f"  {key}={value}\n" in text
        assert f"| `{key}` | {field.metadata['meaning']} |" in rows.replace("\\|", "|")
        assert len(field.metadata["meaning"]) > 10 and stages_of(DEFAULT, key) in (
            "players",
            "2, 3, ilql, awr, players",
            "2, ilql, awr",
        )
