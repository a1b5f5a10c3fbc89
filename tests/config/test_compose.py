"""Composing: defaults of the code, presets, overrides, and the names and folders that follow from them."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from icrl.config.compose import CONF, groups_of, load_config, load_players_config, presets_of
from icrl.config.options import Options, replace, walk
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.nn.gpt import GPT
from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.point_game.options import FIXED_AGENTS, FIXED_HOSTS, PlayersConfig
from icrl.runs.device import recorded
from icrl.runs.files import check_same
from icrl.sources import source_options
from icrl.sources.a2c import A2CConfig
from icrl.sources.dqn import DQNConfig

DEFAULT = load_config()


def value_of(config: Options, key: str) -> object:
    return next(value for name, value, _ in walk(config) if name == key)


def test_defaults_are_those_of_the_code_and_overrides_replace_them() -> None:
    assert DEFAULT.source == A2CConfig() and DEFAULT.model == Config.model_fields["model"].default_factory()
    config = load_config(["source=dqn", "source.unroll_length=4", "+seed=3"])
    assert isinstance(config.source, DQNConfig) and config.source.unroll_length == 4.0 and config.seed == 3
    assert config.source.num_learners == DQNConfig().num_learners and config.source.hidden_size == 16


def test_a_model_is_made_from_its_options_alone() -> None:
    model = GPT(DEFAULT.model, make_env(DEFAULT.env).spec)
    assert sum(parameter.numel() for parameter in model.parameters()) > 1000


@pytest.mark.parametrize("text", ["[{desc: [SF, FG], is_slippery: true}, {}]"])
def test_lists_of_mappings_are_kept_as_written(text: str) -> None:
    config = load_config(["env=gymnasium", f"env.tasks={text}", "env.reward_values=[-1, 0.5]", "env.id=m:A/B-v0"])
    assert value_of(config, "env.tasks") == [{"desc": ["SF", "FG"], "is_slippery": True}, {}]
    assert value_of(config, "env.reward_values") == [-1.0, 0.5] and value_of(config, "env.id") == "m:A/B-v0"
    check_same(config, json.loads(json.dumps(recorded(config))), ["env"], "logs/here")


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["seed", "env", "name", "env.size", "x"]), st.text(max_size=12))
def test_any_text_ends_in_a_configuration_or_an_explanation(key: str, text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(load_config([f"{key}={text}"]), Config)


def test_a_schedule_replaces_the_one_before_as_a_whole_and_its_parts_can_be_set() -> None:
    step = load_config(["optimizer.learning_rate={kind: step, progress: percent, points: [[1, 0.5]]}"])
    assert value_of(step, "optimizer.learning_rate") == {"kind": "step", "progress": "percent", "points": [[1, 0.5]]}
    cosine: Any = value_of(load_config(["optimizer.learning_rate.initial=0.5"]), "optimizer.learning_rate")
    assert cosine["initial"] == 0.5 and cosine["kind"] == "cosine" and "warmup" in cosine
    assert value_of(load_config(["optimizer.learning_rate=1e-3"]), "optimizer.learning_rate") == 1e-3


def test_a_copy_with_changes_knows_its_options() -> None:
    assert replace(DEFAULT.model, context_len=7).context_len == 7
    with pytest.raises(TypeError, match="has no options"):
        replace(DEFAULT.model, context_length=7)


def test_check_same_names_the_field_and_both_values() -> None:
    before = recorded(DEFAULT)
    check_same(DEFAULT, json.loads(json.dumps(before)), before, "logs/here")
    for key, new in (("env.size", 7), ("seed", 3), ("source.learning_rate", 0.25), ("device.dtype", "float64")):
        old = value_of(DEFAULT, key)
        with pytest.raises(ConfigError) as refused:
            check_same(load_config([f"{key}={new}"]), before, ["seed", "env", "source", "device"], "logs/here")
        assert str(refused.value).startswith(f"logs/here was made with {key}={old}")
        assert f"{key}={old}" in str(refused.value) and "another name=" in str(refused.value)


def test_check_same_compares_neither_other_groups_nor_options_that_may_change() -> None:
    other = load_config(["env.size=7", "seed=3", "checkpoints.keep_last=10", "source.videos_per_task=0"])
    check_same(other, recorded(DEFAULT), ["source", "checkpoints"], "logs/here")
    check_same(load_config(["device.type=cuda"]), recorded(load_config(["device=cpu"])), ["device"], "logs/here")


def test_check_same_refuses_a_record_without_an_option() -> None:
    before = recorded(DEFAULT)
    del before["env"]["size"]
    with pytest.raises(ConfigError, match=r"env\.size=None.* has \d"):
        check_same(DEFAULT, before, ["env"], "logs/here")
    before["device"] = "cpu"
    with pytest.raises(ConfigError, match=r"device\.dtype=None.* has float32"):
        check_same(DEFAULT, before, ["device"], "logs/here")


def presets() -> Iterator[str]:
    for group in groups_of(Config):
        yield from (f"{group}={name}" for name in presets_of(group))


@pytest.mark.parametrize("preset", presets())
def test_every_preset_composes_and_says_only_what_differs(preset: str) -> None:
    group, _, name = preset.partition("=")
    fits = {"env=point_game": ["source=a2c"], "env=gymnasium": ["model.context_len=80"]}.get(preset, [])
    config = load_config([preset, *fits])
    written = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"), resolve=False) or {}
    options = getattr(config, group, None)
    if isinstance(options, Options) and "defaults" not in written:
        own = written.get(group, written)
        defaults = {
            key: field.get_default(call_default_factory=True) for key, field in type(options).model_fields.items()
        }
        same = [key for key, value in own.items() if key != "name" and defaults.get(key, ...) == value]
        assert not same or group == "study", f"{preset} repeats the defaults of {same}"


@pytest.mark.parametrize("env", presets_of("env"))
def test_every_world_goes_with_sources_and_has_the_tasks_its_preset_asks_for(env: str) -> None:
    for source in ("a2c", "random") if env == "point_game" else source_options():
        config = load_config([f"env={env}", f"source={source}", "evaluation.num_episodes=4", "model.context_len=20"])
        assert config.data.min_final_success == (0.5 if source in ("a2c", "ppo", "q_learning", "dqn") else 0.0)
    with closing(make_env(config.env)) as made:
        assert len(made.all_tasks()) > config.tasks.num_train


def test_names_follow_each_other_and_folders_the_names() -> None:
    config = load_config(["env=bandit", "source=random", "root=/tmp/x"])
    assert config.name == config.run == "bandit-random" and config.histories == ["bandit-random"]
    assert str(config.folder("logs")) == "/tmp/x/logs/bandit-random" == str(config.run_folder)
    other = load_config(["name=mine", "histories=[a,b]", "run=theirs"])
    assert [folder.name for folder in other.histories_folders] == ["a", "b"] and other.run_folder.name == "theirs"
    assert load_config(["histories=a"]).histories == ["a"]


def test_the_encoder_is_as_large_as_the_model_unless_told_otherwise() -> None:
    config = load_config(["model.embed_dim=32", "model.ff_dim=48"])
    assert (config.encoder.embed_dim, config.encoder.ff_dim, config.decoder.ff_dim) == (32, 48, 48)
    assert load_config(["encoder=mini"]).encoder.embed_dim == 256


def test_reference_has_the_numbers_of_the_reference_pipeline() -> None:
    config = load_config(["experiment=reference"])
    assert (config.model.tokens, config.model.context_len, config.model.ff_dim) == ("interleaved", 256, 2048)
    assert (config.trainer.num_iterations, config.optimizer.name, config.source.num_env_steps) == (
        22000,
        "adam",
        2500000,
    )


@pytest.mark.parametrize("preset", presets_of("players"))
def test_presets_of_players_set_what_they_write(preset: str) -> None:
    config = load_players_config([f"players={preset}"])
    written: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"players/{preset}.yaml")) or {}
    values = {key: value for key, value, _ in walk(config)}
    for group, options in written.items():
        for key, value in options.items() if isinstance(options, dict) else [("", options)]:
            assert values[f"{group}.{key}" if key else group] == value
    check_same(config, json.loads(json.dumps(recorded(config))), recorded(config), "here")


def test_options_of_a_fixed_player_are_not_compared_and_the_fixed_players_are_those_of_the_game() -> None:
    idle = ["host.opponents=[]", "host.net_arch=[{width: 8, residual: true}]"]
    assert load_players_config(["host.player=zeillinger", "agent.opponents=host", *idle]).learning == ["agent"]
    assert tuple(HOSTS) == FIXED_HOSTS and tuple(AGENTS) == FIXED_AGENTS


@pytest.mark.parametrize("config", [DEFAULT, PlayersConfig()], ids=["all stages", "players"])
def test_every_option_has_a_meaning_and_stages(config: Options) -> None:
    for key, _, option in walk(config):
        assert len(option.meaning) > 3 and option.stages and option.meaning != key
