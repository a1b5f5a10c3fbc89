"""Differences between files of versions 0.7 and 0.8 and those of this version, for `upgrade.py`.

If an option, a value of an option or a key in a file is renamed again, add it to the tables here.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from icrl.config.compose import load_config, load_players_config
from icrl.contracts import Json, PipelineError
from icrl.data import history_store
from icrl.runs.device import recorded
from icrl.runs.files import read_json

OPTIONS = {  # renamed options
    "data.num_validation_tasks": "data.num_development_tasks",
    "evals.epsilon_greedy": "evals.sample_probability",
    "evaluation.epsilon_greedy": "evaluation.sample_probability",
    "encoder.dimension": "encoder.embed_dim",
    "encoder.dim_feedforward": "encoder.ff_dim",
    "encoder.position_encoder": "encoder.position",
    "encoder.activation_function": "encoder.activation",
    "decoder.dim_feedforward": "decoder.ff_dim",
    "decoder.activation_function": "decoder.activation",
}
VALUES = {("source.name", "noisy_expert"): "noise_distillation"}  # renamed values of options
HOSTS_07 = (r"^spivakovsky(_first)?(?=@|$)", r"weak_\g<0>")  # 0.8 uses these names for other players
ADDED: dict[str, Any] = {
    "tasks.split": "random",
    "tasks.held_out": [],
    "source.num_workers": 0,
    "evaluation.tasks": "test",
}
PRESETS = {
    "env": "variant",
    "source": "name",
    "objective": "name",
    "optimizer": "name",
}  # group: option that names one
UNIONS = {"env", "source", "objective", "optimizer", "critic"}  # groups without the options that have no effect
NO_NOISE_SCALE = {"weight": 0.0, "signal": 0.0, "noise": 0.0, "valid": None, "update": 0}  # before any estimate
KEYS = [  # renamed keys in `<file>:<dotted path>`: pattern, replacement; `_07` marks files that name no run
    (r"^(train_agents:state)\.place$", r"\1.state_index"),
    (r"^(description:tasks)\.validation$", r"\1.development"),
    (r"^(evaluations\w*:.*\.metrics)\.validation_", r"\1.development_"),
    (r"^(\w+_07:.*\b)(spivakovsky(_first)?_vs_)", r"\1weak_\2"),  # as `HOSTS_07`
]


@cache
def present_config(text_before: str, is_07: bool = False) -> tuple[Any, Json]:
    """Present configuration with the options of an older record (JSON), and its own record in JSON form."""
    before = json.loads(text_before)
    old, is_players = flat(before), "game" in before
    is_07 = is_07 or "data.num_validation_tasks" in old
    new = {OPTIONS.get(key, key): VALUES.get((key, str(value)), value) for key, value in old.items()}
    if is_07:
        hosts = {key: value for key, value in new.items() if key.endswith(".opponents")}
        new |= {key: [re.sub(*HOSTS_07, one) for one in value] for key, value in hosts.items()}
    if old.get("data.num_validation_tasks") == 0:
        new["trainer.evaluate"] = False  # 0.7 evaluated on held-out tasks only
    load = load_players_config if is_players else load_config
    presets = [] if is_players else [f"{group}={new[f'{group}.{option}']}" for group, option in PRESETS.items()]
    present = flat(recorded(load(presets)))
    new = {key: value for key, value in ADDED.items() if key in present} | new
    if unknown := [key for key in new if key not in present and key.partition(".")[0] not in UNIONS]:
        raise PipelineError(
            f"{', '.join(unknown)}: this version has no such options, and cannot convert a run with them"
        )
    options = {key: value for key, value in new.items() if key in present and not key.startswith("study.")}
    config = load([*presets, *(f"{key}={text(value)}" for key, value in options.items())])
    study = {"study": before["study"]} if "study" in before else {}
    return config, json.loads(json.dumps(recorded(config) | study))


def program_of(description: Json) -> str:
    """Name of the program that wrote a checkpoint; stage one and the players of 0.7 did not record it."""
    config = description.get("config", description)
    return description.get("program") or ("train_players" if "game" in config else "train_agents")


def inputs_07(root: Path, config: Any, described: Json) -> Json:
    """Checksums of the inputs of a run of 0.7 under `root`, from its checkpoint's description."""
    source, found = config.source, dict[str, Any]()
    if "histories" in described:
        found["histories"] = [store["sha256"] for store in described["histories"]]
        found |= {} if described["program"] == "train_gpt" else {"warm_start": {}}  # 0.7 did not record it
        found |= {"critic": described["critic"]} if "critic" in described else {}
        found |= {"reward_plugin": described["reward_plugin"]["sha256"]} if "reward_plugin" in described else {}
        return found
    if (teacher := getattr(source, "teacher", "none")) != "none":
        sidecars = sorted((root / "logs" / teacher / "source").glob("last-*.json"))
        found["source.teacher"] = read_json(sidecars[-1])["state_sha256"] if sidecars else ""
    if (others := getattr(source, "offline_buffer_dir", "none")) != "none":
        path = root / "histories" / others / history_store.MANIFEST
        found["source.offline_buffer_dir"] = history_store.checksum_of(read_json(path)) if path.exists() else ""
    return found


def rename_keys(tree: Any, path: str, renamed: list[str]) -> Any:
    """Copy of `tree`, which is at `path`, with keys renamed by `KEYS`. New paths are added to `renamed`."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(rename_keys(item, f"{path}{index}.", renamed) for index, item in enumerate(tree))
    if not isinstance(tree, dict):
        return tree
    found = {}
    for key, value in tree.items():
        new = f"{path}{key}"
        for pattern, replacement in KEYS:
            new = re.sub(pattern, replacement, new)
        renamed += [new] if new != f"{path}{key}" else []
        found[new.removeprefix(path) if isinstance(key, str) else key] = rename_keys(value, f"{new}.", renamed)
    return found


def rebuild_state(program: str, state: dict[str, Any], step: int) -> dict[str, Any]:
    """Checkpoint `state` at `step` with the layout of the present version; the same object if it has that layout."""
    fitted = program not in ("train_agents", "train_players")
    if fitted and "update" in state:
        new = {key: value for key, value in state.items() if key not in ("update", "board")} | {"step": step}
        noise_scale = state.get("board", {}).get("noise_scale") or NO_NOISE_SCALE
        return new | ({"noise_scale": noise_scale} if "board" in state else {})
    if program == "train_agents" and "iteration" in state:
        moved = ("iteration", "state", "step", "carry", "player")
        streams = {"state": state["state"], "step": state["step"], "carry": state.get("carry", [])}
        new = {key: value for key, value in state.items() if key not in moved}
        return new | {"step": step, "streams": streams, "unroll_worker": state["player"]}
    if program == "train_players" and "learners" in state:
        return {"step": step} | {name: _rebuild_player(learner) for name, learner in state["learners"].items()}
    return state


def _rebuild_player(learner: dict[str, Any]) -> dict[str, Any]:
    games = [games | {"subset": subset} for games, subset in learner["turns"]]
    return {key: value for key, value in learner.items() if key != "turns"} | {"games": games}


def flat(config: Json) -> Json:
    """Recorded configuration by dotted option."""
    groups = {key: value if isinstance(value, dict) else {"": value} for key, value in config.items()}
    return {f"{key}.{option}".rstrip("."): value for key, group in groups.items() for option, value in group.items()}


def text(value: Any) -> str:
    """Value in command-line syntax."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {text(part)}' for key, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    return "'" + value.replace("'", "\\'") + "'" if isinstance(value, str) else json.dumps(value)
