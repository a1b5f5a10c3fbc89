"""Differences between files of version 0.8 and those of this version, for `upgrade.py`.

If an option, a value of an option or a key in a file is renamed again, add it to the tables here.
"""

import json
from importlib import import_module
from typing import Any

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.config.modules import recorded_options
from icrl.config.options import group_class, without_former
from icrl.contracts import Json, PipelineError

OPTIONS = {  # renamed options
    "evals.epsilon_greedy": "evals.sample_probability",
    "evaluation.epsilon_greedy": "evaluation.sample_probability",
    "encoder.dimension": "encoder.embed_dim",
    "encoder.dim_feedforward": "encoder.ff_dim",
    "encoder.position_encoder": "encoder.position",
    "encoder.activation_function": "encoder.activation",
    "decoder.dim_feedforward": "decoder.ff_dim",
    "decoder.activation_function": "decoder.activation",
}
VALUES = {  # renamed values of options
    ("source.name", "noisy_expert"): "noise_distillation",
    ("env.expert", "icrl.envs.gym.mini_grid:ShortestWay"): "icrl.extensions.gym_worlds.mini_grid:ShortestWay",
}
BEFORE = {"model.num_kv_heads": 0}  # options that did not exist in 0.8, as it was then
PRESETS = ("env.variant", "source.name", "objective.name", "optimizer.name")  # options with the name of a preset
UNIONS = {"env", "source", "objective", "optimizer", "critic"}  # groups without the options that have no effect
OF_OTHERS = {"launch", "search", "shard", "study"}  # groups that no run reads, only programs that start runs
NO_NOISE_SCALE = {"weight": 0.0, "signal": 0.0, "noise": 0.0, "valid": None, "update": 0}  # before any estimate


def present_config(before: Json) -> tuple[Any, Json]:
    """Present configuration with the options of an older record, and its own record in JSON form."""
    others = {group: before[group] for group in before.keys() & OF_OTHERS}  # stay as they are
    old = flat({group: value for group, value in before.items() if group not in others})
    new = {OPTIONS.get(key, key): VALUES.get((key, str(value)), value) for key, value in old.items()}
    if old.get("model.add_env_time") and "presets" not in old:  # before, it was added to position=none too
        no_code = [key for key in ("model.position", "encoder.position") if new.get(key) == "none"]
        new |= dict.fromkeys(no_code, "env_time")
    if "game" in before:
        root = program_of("train_players", "point_game").OPTIONS
        present = flat(compose_config(root, []).model_dump())
    else:
        offline = "critic" in before and "train_ilql" in extensions.programs()
        root = program_of("train_ilql", "offline_rl").OPTIONS if offline else Config
        present = flat(compose_config(root, [f"{key.split('.')[0]}={new[key]}" for key in PRESETS]).model_dump())
        new = {key: value for key, value in new.items() if key.partition(".")[0] in root.model_fields}
    grouped = {group: (group_class(root, group, value), value) for group, value in _nested(new).items()}
    new = flat(
        {group: without_former(of, value, f"{group}.") if of else value for group, (of, value) in grouped.items()}
    )
    if unknown := [key for key in new if key not in present and key.partition(".")[0] not in UNIONS]:
        raise PipelineError(f"{', '.join(unknown)}: this version has no such options, and cannot convert the run")
    kept = {key: value for key, value in (BEFORE | new).items() if key in present}
    config = recorded_options(root, _nested(present | kept), "a run of an older version")
    return config, json.loads(json.dumps(config.model_dump() | others))


def program_of(name: str, extension: str) -> Any:
    """Module of the program `name` of an `extension`. Raises `PipelineError` if that is not installed."""
    if (module := extensions.programs().get(name)) is None:
        raise PipelineError(f"a run of {name} can be upgraded only where the extension {extension} is installed")
    return import_module(module)


def flat(config: Json) -> Json:
    """Recorded configuration by dotted option."""
    groups = {key: value if isinstance(value, dict) else {"": value} for key, value in config.items()}
    return {f"{key}.{option}".rstrip("."): value for key, group in groups.items() for option, value in group.items()}


def _nested(options: Json) -> Json:
    """Recorded configuration from one by dotted option."""
    groups: dict[str, Any] = {}
    for key, value in options.items():
        group, _, option = key.partition(".")
        groups |= {group: groups.get(group, {}) | {option: value} if option else value}
    return groups


def rebuild_state(program: str, state: dict[str, Any], step: int) -> dict[str, Any]:
    """Checkpoint `state` at `step` with the layout of the present version; the same object if it has that layout."""
    if program == "train_players" and "learners" in state:
        new: dict[str, Any] = {"step": step}
        for name, learner in state["learners"].items():
            games = [one | {"subset": subset} for one, subset in learner["turns"]]
            new[name] = _without(learner, "turns") | {"games": games}
        return new
    if program == "train_agents" and "iteration" in state:
        streams = {"step": state["step"], "carry": state["carry"]}
        streams["state"] = {"inner" if key == "place" else key: value for key, value in state["state"].items()}
        new = _without(state, "iteration", "state", "step", "carry", "player")
        return new | {"step": step, "streams": streams, "unroll_worker": state["player"]}
    if program not in ("train_agents", "train_players") and "update" in state:
        noise_scale = {"noise_scale": state["board"]["noise_scale"] or NO_NOISE_SCALE} if "board" in state else {}
        return _without(state, "update", "board") | {"step": step} | noise_scale
    return state


def _without(state: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in keys}
