"""Options of offline RL: presets, refusals, and the table of the reference's options in the docs."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pages import check_options_of_table, rows_of
from refusals import check_refusal, refusals

from icrl import extensions
from icrl.app.compose import compose_config, load_config, presets_of
from icrl.config.options import Options, walk
from icrl.contracts import ConfigError
from icrl.extensions.offline_rl.options import OfflineConfig

GROUPS = ("encoder", "decoder", "critic", "awr")
HEADING = "## Options of the reference and ours"
# All that the rules are about, so that other defaults do not change them.
PLAIN = (
    *("env.max_episode_steps=20", "tasks.num_train=57", "source.num_learners=10", "source.num_envs=10"),
    *("source.unroll_length=10", "source.num_iterations=0", "source.num_env_steps=30000"),
    *("source.history_steps=30000", "source.videos_per_task=1", "source.mini_batch_length=0"),
    *("source.mini_batch_size=0", "data.history_len=0", "data.kept_steps=0", "data.num_development_tasks=6"),
    *("model.embed_dim=64", "model.num_heads=4", "model.context_len=160", "model.max_size=17"),
    *("model.position=learned", "model.add_env_time=true", "model.obs_encoding=coordinates"),
    *("trainer.mini_batch_size=32", "evals.num_evals=8", "evals.num_eval_episodes=256"),
    *("evals.num_eval_environments=16", "checkpoints.num_checkpoints=10", "summaries.num_summaries=100"),
    *("evaluation.num_episodes=40", "evaluation.checkpoint=best"),
    *("critic.imitation_scaling=0", "awr.inverse_temperature=10", "policy.advantage_scale=0"),
)
# The default here, as the last column of the table shows it, by first name of a row: option, preset, value.
DEFAULTS: list[tuple[str, str, str, list[str], Any, str]] = [
    ("offline_rl.md", "device.type", "device.type", [], "auto", "; `auto`"),
    ("offline_rl.md", "device.dtype", "device.dtype", [], "float32", "float32 on both"),
    ("offline_rl.md", "device.amp_dtype", "device.amp_dtype", [], "none", "none on both"),
    ("offline_rl.md", "encoder.position", "encoder.position", [], "env_time", "`env_time` with `encoder=model`"),
    (
        "offline_rl.md",
        "encoder.position",
        "encoder.position",
        ["encoder=bert_base"],
        "learned",
        "`learned` in the other",
    ),
    ("offline_rl.md", "encoder.activation", "encoder.activation", [], "gelu", "equal: gelu"),
    ("offline_rl.md", "encoder.dropout", "encoder.dropout", [], 0.0, "0.0 with `encoder=model`"),
    ("offline_rl.md", "encoder.dropout", "encoder.dropout", ["encoder=tiny"], 0.1, "0.1 in the other"),
    ("offline_rl.md", "decoder", "decoder.num_layers", [], 2, "two layers, in both"),
    ("offline_rl.md", "reward_plugin", "critic.reward_plugin", [], "identity", "`identity`"),
    ("offline_rl.md", "discount_factor", "critic.discount_factor", [], 0.9, "1.0; 0.9"),
    ("offline_rl.md", "discount_factor", "critic.discount_factor", ["critic=reference"], 1.0, "1.0 with `critic="),
    ("offline_rl.md", "expectile", "critic.expectile", [], 0.8, "required; 0.8"),
    ("offline_rl.md", "v_loss_scaling", "critic.v_loss_scaling", [], 1.0, "equal: 1.0"),
    ("offline_rl.md", "target_update_interval", "critic.target_update_interval", [], 1, "equal: 1"),
    ("offline_rl.md", "target_update_rate", "critic.target_update_rate", [], 0.2, "0.1; 0.2"),
    (
        "offline_rl.md",
        "target_update_rate",
        "critic.target_update_rate",
        ["critic=reference"],
        0.1,
        "0.1 with `critic=",
    ),
    ("offline_rl.md", "checkpointing", "trainer.activation_checkpointing", [], False, "equal: false"),
    ("offline_rl.md", "batch_size", "trainer.mini_batch_size", [], 32, "32 windows of 160 steps"),
    (
        "offline_rl.md",
        "batch_size",
        "trainer.mini_batch_size",
        ["experiment=default"],
        16,
        "16 in `experiment=default`",
    ),
    ("offline_rl.md", "batch_size", "model.context_len", [], 160, "of 160 steps"),
    ("offline_rl.md", "gradient_accumulation_steps", "trainer.gradient_accumulation_steps", [], 1, "equal: 1"),
    ("offline_rl.md", "max_gradient_norm", "optimizer.max_gradient_norm", [], 1.0, "1.0 in both"),
    ("offline_rl.md", "optimizer", "optimizer.name", [], "adamw", "`lamb`; `adamw`"),
    ("offline_rl.md", "optimizer", "optimizer.name", ["experiment=default"], "muon", "in `experiment=default` `muon`"),
    ("offline_rl.md", "momentum", "optimizer.momentum", ["optimizer=sgd"], 0.9, "; 0.9"),
    ("offline_rl.md", "epsilon", "optimizer.epsilon", ["optimizer=lamb"], 1e-6, "1e-6 for LAMB"),
    ("offline_rl.md", "epsilon", "optimizer.epsilon", ["optimizer=adam"], 1e-8, "1e-8 for the others"),
    (
        "offline_rl.md",
        "weight decay",
        "optimizer.weight_decay",
        ["optimizer=lamb"],
        0.01,
        "0.01 for LAMB, AdamW and Muon",
    ),
    ("offline_rl.md", "weight decay", "optimizer.weight_decay", ["optimizer=mtadam"], 0.0, "0 for MTAdam"),
    ("offline_rl.md", "initialize", "optimizer.initialize", [], False, "else false; false"),
    ("offline_rl.md", "snapshot_interval", "checkpoints.snapshot_interval", [], 0, "equal: 0"),
    ("offline_rl.md", "AWR: `inverse_temperature`", "awr.inverse_temperature", [], 10.0, "inverse temperature 10"),
    ("offline_rl.md", "AWR: `inverse_temperature`", "awr.temperature", ["awr=reference"], 0.05, "0.05 with `awr="),
    ("offline_rl.md", "AWR: `advantage_threshold`", "awr.advantage_threshold", [], 20.0, "here 20"),
    ("offline_rl.md", "AWR: `initial_encoder`", "awr.initial_encoder", [], "none", "equal: none"),
    ("offline_rl.md", "AWR: `num_epochs`", "awr.num_epochs", [], 0, "1; 0"),
    ("offline_rl.md", "AWR: `experiment_name`", "awr.experiment_name", [], "awr", "; `awr`"),
    ("offline_rl.md", "AWR: `resume`", "awr.resume", [], True, "false; true"),
    ("offline_rl.md", "CQL: quantile Q", "critic.conservative_scaling", ["critic=cql"], 0.1, "0.1 with `critic=cql`"),
    ("offline_rl.md", "CQL: quantile Q", "critic.conservative_scaling", [], 0.0, "else 0"),
    *(
        ("offline_rl.md", "learning_rate", "optimizer.learning_rate.initial", [f"optimizer={name}"], rate, shown)
        for name, rate, shown in (
            *(("adamw", 4e-3, "Muon 4e-3"), ("radam", 4e-3, "Muon 4e-3"), ("muon", 4e-3, "Muon 4e-3")),
            *(("lamb", 1e-2, "LAMB 1e-2"), ("mtadam", 1e-3, "MTAdam 1e-3"), ("adam", 3e-4, "Adam 3e-4")),
            ("sgd", 0.1, "sgd 0.1"),
        )
    ),
]


def value_of(config: Options, key: str) -> Any:
    return next(value for name, value, _ in walk(config) if name == key)


def load(overrides: Any) -> OfflineConfig:
    return compose_config(OfflineConfig, overrides)


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(lambda given: load([*PLAIN, *given]), overrides, named)


@pytest.mark.skipif("recurrent" not in extensions.NAMES, reason="the layer is an extension")
def test_rotary_positions_of_a_critic_need_attention() -> None:
    check_refusal(load, ["model.trunk=delta", "encoder.position=rope"], ("encoder.position=rope", "model.trunk=delta"))


@pytest.mark.parametrize("line", Path(__file__).with_name("allowed.txt").read_text().splitlines())
def test_options_that_only_nearly_conflict_are_allowed(line: str) -> None:
    load([*PLAIN, *re.split(r" (?=[\w.]+=)", line)])


@pytest.mark.parametrize("preset", [f"{group}={name}" for group in GROUPS for name in presets_of(group)])
def test_every_preset_composes(preset: str) -> None:
    group, _, name = preset.partition("=")
    config, written = load([preset]), OmegaConf.load(presets_of(group)[name]) or {}
    assert {*written} <= {*type(getattr(config, group)).model_fields}


def test_networks_follow_the_model_and_the_room_follows_their_positions() -> None:
    config = load(["model.embed_dim=32", "model.ff_dim=48"])
    assert (config.encoder.embed_dim, config.encoder.ff_dim, config.decoder.ff_dim) == (32, 48, 48)
    assert (config.model.context_len, config.trainer.mini_batch_length) == (400, 160)
    config = load(["encoder=mini"])
    assert (config.encoder.embed_dim, config.encoder.position) == (256, "learned")
    assert (config.model.context_len, config.trainer.mini_batch_length) == (160, 0)


def test_other_programs_have_none_of_these_options() -> None:
    for option in ("critic=cql", "awr.temperature=1", "encoder.num_layers=2", "offline=reference"):
        with pytest.raises(ConfigError, match=re.escape(option.partition("=")[0].partition(".")[0])):
            load_config([option])


def test_presets_of_the_reference_offline_programs_have_its_defaults() -> None:
    """Numbers of its option tables: ILQL, BERT, LAMB, and the newer of its two AWR programs."""
    config = load(["offline=reference"])
    expected = {
        **{"critic.discount_factor": 1.0, "critic.return_lambda": 0.0, "critic.v_loss_scaling": 1.0},
        **{"critic.target_update_interval": 1, "critic.target_update_rate": 0.1, "critic.conservative_scaling": 0.0},
        **{"critic.backup": "expectile", "critic.separate_value": False, "critic.reward_plugin": "identity"},
        **{"encoder.position": "learned", "encoder.embed_dim": 768, "encoder.num_heads": 12, "encoder.num_layers": 12},
        **{"encoder.ff_dim": 3072, "encoder.activation": "gelu", "encoder.dropout": 0.1, "encoder.load_from": "none"},
        **{"decoder.num_layers": 2, "decoder.ff_dim": 3072, "decoder.activation": "gelu", "decoder.dropout": 0.1},
        **{"optimizer.name": "lamb", "optimizer.learning_rate": 1e-3, "optimizer.epsilon": 1e-6},
        **{"optimizer.max_gradient_norm": 1.0, "optimizer.weight_decay": 0.01, "optimizer.initialize": False},
        **{"trainer.gradient_accumulation_steps": 1, "trainer.activation_checkpointing": False},
        **{"awr.temperature": 0.05, "awr.inverse_temperature": None, "awr.advantage_threshold": 20.0},
        **{"awr.normalize": "none", "awr.num_epochs": 1, "awr.initial_encoder": "none"},
        "checkpoints.snapshot_interval": 0,
    }
    assert {key: value_of(config, key) for key in expected} == expected
    parts = load(["critic=reference", "awr=reference"])
    assert (parts.critic, parts.awr) == (config.critic, config.awr)


@cache
def options_of(*chosen: str) -> dict[str, Any]:
    """Default of each option by its key, with presets."""
    return {key: default for key, default, _ in walk(load(chosen))}


def test_every_option_of_the_table_exists() -> None:
    chosen = ("experiment=four_layers", *(f"optimizer={name}" for name in presets_of("optimizer")))
    check_options_of_table(rows_of("offline_rl.md", HEADING), {key for one in chosen for key in options_of(one)})


@pytest.mark.parametrize(("page", "row", "key", "chosen", "value", "shown"), DEFAULTS)
def test_defaults_are_those_of_the_options(page: str, row: str, key: str, chosen: Any, value: Any, shown: str) -> None:
    rows = rows_of(page, HEADING)
    found = [cells for cells in rows if cells[0].replace("`", "").startswith(row.replace("`", ""))]
    assert found and any(shown in cells[-1] for cells in found), (row, found)
    options = options_of(*(chosen if "experiment" in str(chosen) else ["experiment=four_layers", *chosen]))
    *_, part = key.split(".")
    assert (options[key] if key in options else options[key.removesuffix(f".{part}")][part]) == value
