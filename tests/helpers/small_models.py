"""Small models in a small world: their options, windows and checkpoints, for tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import AnyRoot, replace
from icrl.contracts import Batch, Json
from icrl.nn.gpt import Context, Window, context_of
from icrl.runs import checkpoint
from icrl.runs.files import Identity, write_owned
from icrl.spaces import discrete_spec

SPEC = discrete_spec(num_obs=9, num_actions=4, reward_values=(-1.0, 0.0, 2.0), width=3, max_episode_steps=5)
LENGTH = 7
SPLIT = {"all": [[0], [1], [2], [3], [4], [5]], "train": [0, 1, 2, 3], "held_out": [4, 5], "development": [3]}
OPTIONS = (
    *("experiment=four_layers", f"model.context_len={LENGTH}", "model.embed_dim=8", "model.num_layers=1"),
    *("model.num_heads=2", "model.ff_dim=16", "model.position=learned", "model.obs_encoding=cell"),
    *("trainer.mini_batch_size=4", "summaries.num_summaries=0", "trainer.evaluate=false"),
    *("evaluation.checkpoint=last", "data.kept_steps=0"),
)
CONFIG = load_config(OPTIONS)
RUN = "f00d"  # run of all checkpoints that are saved here


def config_of(base: AnyRoot = CONFIG, **changes: dict[str, Any]) -> AnyRoot:
    """`base` with some options of a group changed: `model={"num_layers": 2}`."""
    return replace(base, **{group: replace(getattr(base, group), **some) for group, some in changes.items()})


def batch_of(
    num_windows: int = 3,
    length: int = LENGTH,
    seed: int = 0,
    terminated: Sequence[int] = (),
    truncated: Sequence[int] = (),
) -> Batch:
    """Random windows whose steps have nothing to do with each other. Episodes end where the flat flags say."""
    generator = torch.Generator().manual_seed(seed)

    def below(high: int) -> Tensor:
        return torch.randint(high, (num_windows, length), generator=generator)

    def flags(given: Sequence[int]) -> Tensor:
        return torch.tensor(given or [0] * (num_windows * length)).view(num_windows, length)

    return Batch(
        obs=below(SPEC.num_obs),
        action=below(SPEC.num_actions),
        reward=SPEC.reward_of(below(SPEC.num_rewards)),
        next_obs=below(SPEC.num_obs),
        timestep=below(SPEC.max_episode_steps),
        terminated=flags(terminated),
        truncated=flags(truncated),
        optimal_action=below(SPEC.num_actions),
        weight=torch.ones(num_windows, length),
        training_reward=torch.randn(num_windows, length, generator=generator),
    )


def shown(batch: Batch) -> Context:
    """Context of a batch."""
    return context_of(Window.of(batch))


def described(config: Config = CONFIG, program: str = "train_gpt", tasks: Json = SPLIT) -> Json:
    """Description of a model in its checkpoint's sidecar."""
    about = {"program": program, "config": config.model_dump(), "env": SPEC.to_json(), "tasks": tasks}
    made_of = {"histories": [{"name": "mine", "sha256": "abc"}], "inputs": {"histories": ["abc"]}}
    return json.loads(json.dumps(about | {"run": RUN} | made_of))


def saved(folder: Path, model: nn.Module, update: int = 3, **about: Any) -> str:
    """Path of a new checkpoint of `model`; `about` are arguments of `described`."""
    state = {"step": update, "model": model.state_dict(), "updater": {"optimizer": "of then"}}
    checkpoint.save(folder, "last", update, state, described(**about), 1)
    return str(folder / f"last-{update:09d}.pt")


def finish(folder: Path, update: int, program: str = "train_gpt", run: str = RUN) -> None:
    """Mark a run of `program` in `folder` as finished at this update."""
    write_owned(folder / "finished.json", Identity(program, run), update, {"updates": update})


def same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
