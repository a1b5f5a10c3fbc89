"""Options of offline RL: presets, refusals, and the table of the reference's options in the docs."""

import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pages import check_options_of_table, rows_of
from refusals import PLAIN, check_refusal, refusals

from icrl import extensions
from icrl.app.compose import compose_config, load_config, presets_of
from icrl.config.options import Options, walk
from icrl.contracts import ConfigError
from icrl.extensions.offline_rl.options import OfflineConfig

GROUPS = ("encoder", "decoder", "critic", "awr")
RULES = (*PLAIN, "awr.inverse_temperature=10")


def value_of(config: Options, key: str) -> Any:
    return next(value for name, value, _ in walk(config) if name == key)


def load(overrides: Any) -> OfflineConfig:
    return compose_config(OfflineConfig, overrides)


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(lambda given: load([*RULES, *given]), overrides, named)


@pytest.mark.skipif("recurrent" not in extensions.NAMES, reason="the layer is an extension")
def test_rotary_positions_of_a_critic_need_attention() -> None:
    check_refusal(load, ["model.trunk=delta", "encoder.position=rope"], ("encoder.position=rope", "model.trunk=delta"))


def test_an_unknown_option_is_answered_with_a_longer_one_of_its_group_before_one_of_another_group() -> None:
    check_refusal(load, ["critic.discount=0.9"], ["did you mean critic.discount_factor?"])


@pytest.mark.parametrize("line", Path(__file__).with_name("allowed.txt").read_text().splitlines())
def test_options_that_only_nearly_conflict_are_allowed(line: str) -> None:
    load([*RULES, *re.split(r" (?=[\w.]+=)", line)])


def test_every_preset_composes() -> None:
    """The first ones of all groups together, and so on."""
    names = {group: [*presets_of(group)] for group in GROUPS}
    for number in range(max(map(len, names.values()))):
        chosen = {group: found[number % len(found)] for group, found in names.items()}
        config = load([f"{group}={name}" for group, name in chosen.items()])
        for group, name in chosen.items():
            written = OmegaConf.load(presets_of(group)[name]) or {}
            assert {*written} <= {*type(getattr(config, group)).model_fields}


def test_networks_follow_the_model_and_the_room_follows_their_positions() -> None:
    config = load(["model.embed_dim=32", "model.ff_dim=48"])
    assert (config.encoder.embed_dim, config.encoder.ff_dim, config.decoder.ff_dim) == (32, 48, 48)
    assert (config.model.context_len, config.trainer.mini_batch_length) == (400, 160)
    config = load(["encoder=mini"])
    assert (config.encoder.embed_dim, config.encoder.position) == (256, "learned")
    assert (config.model.context_len, config.trainer.mini_batch_length) == (160, 0)


def test_other_programs_have_none_of_these_options() -> None:
    for option in ("critic=cql", "awr.inverse_temperature=1"):
        with pytest.raises(ConfigError, match=re.escape(option.partition("=")[0].partition(".")[0])):
            load_config([option])


def test_presets_of_the_reference_offline_programs_have_its_defaults() -> None:
    """Numbers of its option tables: ILQL, BERT, LAMB, and the newer of its two AWR programs."""
    config = load(["offline=reference"])
    for pair in Path(__file__).with_name("reference.txt").read_text().split():
        key, _, value = pair.partition("=")
        assert str(value_of(config, key)) == value, key
    parts = load(["critic=reference", "awr=reference"])
    assert (parts.critic, parts.awr) == (config.critic, config.awr)


def test_every_option_of_the_table_exists() -> None:
    known = {key for key, _, _ in walk(load(["experiment=four_layers"]))}
    check_options_of_table(rows_of("offline_rl.md", "## Options of the reference and ours"), known)
