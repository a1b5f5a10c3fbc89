"""Content of `checkpoint.js`: the network, the room, and the references that the page draws beside the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from icrl import extensions
from icrl.config.options import refuse
from icrl.contracts import ConfigError, Json
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.protocol import PARTS
from icrl.evaluation.references import exact_references
from icrl.extensions.demo.network import empty_columns, export_network, is_recurrent
from icrl.extensions.demo.page import packed
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy

_TYPES = {torch.float32: "float32", torch.int64: "int64"}


def check_room(env: TensorEnv, name: str) -> DarkRoom:
    """`env`, if it is a room that the page can show. Raises `ConfigError` if not; `name` is its `env.name`."""
    if not isinstance(env, DarkRoom):
        raise ConfigError(f"env.name={name}: the page shows rooms with one goal, so it must be dark_room")
    refuse(env.permute_actions, "env.permute_actions=true: the page only shows rooms where it is false")
    return env


def file_content(env: DarkRoom, policy: GPTPolicy, about: Json, goals: Json, curves: Json) -> bytes:
    """The whole file for a `policy` whose model is a GPT.

    `about` names the checkpoint, `goals` has the cells that were `train` and `held_out`, and `curves` are those of its
    evaluation, empty if there is none. Raises `ConfigError` and `PipelineError` as `export_network` does."""
    model, size, terminates = policy.model.float(), env.size, env.terminate_on_goal
    assert isinstance(model, GPT)
    start = int(env.starts[0]) if not env.random_start else None
    centre = size**2 // 2 if start is None else start
    far = max(goals["held_out"], key=lambda cell: abs(cell // size - centre // size) + abs(cell % size - centre % size))
    steps, plan = env.spec.max_episode_steps, None
    if start is not None and "searchers" in extensions.NAMES:
        from icrl.extensions.searchers.explorers import cells_walked, covering_plan  # noqa: PLC0415, may be missing

        plan = cells_walked(covering_plan(size, steps, start), size, start).tolist()
    recurrent = is_recurrent(model)
    content = {
        "about": about | {"parameters": sum(one.numel() for one in model.parameters())},
        "room": {"size": size, "max_steps": steps, "start": start, "terminates": terminates},
        "goals": goals | {"first": far},
        "context": {"length": model.config.context_len, "kept": policy.num_kept},
        "policy": {"temperature": policy.temperature if policy.sample_probability else 0.0},
        "measure": {
            "key": "stepsToGoal" if terminates else "return",
            "title": "steps to the goal" if terminates else "reward in the episode",
            "most": steps,
            "lessIsBetter": terminates,
        },
        "references": references_of(env, curves),
        "plan": plan,
        "network": {
            "columns": [{"type": _TYPES[one.dtype], "shape": list(one.shape)} for one in empty_columns(model)],
            "layers": 0 if recurrent else model.config.num_layers,
            "heads": model.config.num_heads,
            "one_at_a_time": recurrent,
            "content": packed(export_network(model)),
        },
    }
    return f"globalThis.CHECKPOINT = {json.dumps(content)};\n".encode()


def references_of(env: DarkRoom, curves: Json) -> dict[str, Any]:
    """Expected results of random and optimal play with the goal on each cell, and two mean curves of an evaluation: of
    the source in its first episodes, and of the model on held-out goals."""
    measure = "steps_to_goal" if env.terminate_on_goal else "returns"
    exact = exact_references(env, torch.arange(env.size**2)[:, None])
    found: dict[str, Any] = {name: _rounded(values[measure]) for name, values in exact.items()}
    named = {"average": (PARTS["held_out"], "this model, mean over held-out goals")}
    for name in curves:
        if name.endswith("start of life"):
            named["source"] = (name, f"its source, mean ({name})")
    for name, (curve, label) in named.items():
        if curve in curves:
            found[name] = {"label": label, "values": _rounded(curves[curve][measure]["mean"])}
    return found


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]
