"""Helpers of the tests of the page: small models in a room, and the code of the page run in Node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.extensions.demo import page
from icrl.extensions.demo.checkpoint import check_room
from icrl.nn.gpt import GPT

COMMITTED = Path(__file__).resolve().parents[2] / "examples" / "demo" / page.CHECKPOINT
ROLLOUT = Path(__file__).resolve().parents[1] / "extensions" / "demo" / "rollout.mjs"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


class Small(NamedTuple):
    model: GPT
    env: DarkRoom


def small_model(*options: str) -> Small:
    """A model with random weights, so large that its actions are decided, and its room of 5 x 5."""
    sizes = ("context_len=24", "embed_dim=16", "num_layers=2", "ff_dim=32", "num_heads=2", "num_kv_heads=2")
    world = ("env=dark_room", "env.size=5", "env.max_episode_steps=10")
    config = load_config([*world, *(f"model.{size}" for size in sizes), *options])
    env = check_room(make_env(config.env), config.env.name)
    torch.manual_seed(1)
    model = GPT(config.model, env.spec).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3.0 if parameter.dim() > 1 else 1.0)
    return Small(model, env)


def play_in_node(folder: Path, checkpoint: Path, noise: list[float], steps: int, goal: int, **more: Any) -> Any:
    """Frames of a life that the page's own code plays with the uniform numbers `noise`; see `rollout.mjs`."""
    files = page.runtime_files()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    library, wasm = (str(folder / name) for name in files)
    given = {"static": str(page.HERE / "static"), "library": library, "wasm": wasm, "checkpoint": str(checkpoint)}
    given |= {"noise": noise, "steps": steps, "goal": goal, "temperature": 1.0, **more}
    played = subprocess.run(
        ["node", str(ROLLOUT)], input=json.dumps(given), capture_output=True, text=True, timeout=250, check=False
    )
    assert played.returncode == 0, played.stderr
    return json.loads(played.stdout)
