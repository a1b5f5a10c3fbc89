"""Small critics and windows for tests."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from models import outspoken
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.root import Config
from icrl.contracts import Batch, EnvSpec, Json
from icrl.nn.critic import Critic, ValueNetwork, trunk_config
from icrl.nn.gpt import Context, context_of
from icrl.runs import checkpoint
from icrl.runs.device import recorded
from icrl.runs.identity import Identity, write_owned

SPEC = EnvSpec(num_obs=9, num_actions=4, reward_values=(-1.0, 0.0, 2.0), width=3, max_episode_steps=5)
LENGTH = 7
SPLIT = {"all": [[0], [1], [2], [3], [4], [5]], "train": [0, 1, 2, 3], "held_out": [4, 5], "development": [3]}
CONFIG = load_config(
    [
        *(f"model.context_len={LENGTH}", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2"),
        *(
            "model.ff_dim=16",
            "model.position=learned",
            "model.obs_encoding=cell",
            "critic=ilql",
            "critic.return_lambda=0",
        ),
        *("trainer.mini_batch_size=4", "summaries.num_summaries=0", "trainer.evaluate=false"),
        *("evaluation.checkpoint=last", "data.kept_steps=0"),
    ]
)


def config_of(base: Config = CONFIG, **changes: dict[str, Any]) -> Config:
    """`critic={"backup": "max"}` changes some options of a group."""
    return dataclasses.replace(
        base, **{group: dataclasses.replace(getattr(base, group), **some) for group, some in changes.items()}
    )


def fresh_critic(config: Config = CONFIG, spec: EnvSpec = SPEC) -> Critic:
    return Critic(trunk_config(config.model, config.encoder), config.decoder, config.critic, spec)


def critic_of(**changes: dict[str, Any]) -> Critic:
    """With parameters so large that all it reads shows in its values; the slow copy has others. In training mode."""
    critic = outspoken(fresh_critic(config_of(**changes)))
    critic.updates.zero_()
    return critic.train()


RUN = "f00d"  # of all that is saved here


def batch_of(
    num_windows: int = 3,
    length: int = LENGTH,
    seed: int = 0,
    terminated: Sequence[int] = (),
    truncated: Sequence[int] = (),
) -> Batch:
    """Random windows: what a step shows has nothing to do with the one before it. Episodes end where the flat flags
    say; nowhere, if there are none."""
    generator = torch.Generator().manual_seed(seed)

    def below(high: int) -> Tensor:
        return torch.randint(high, (num_windows, length), generator=generator)

    def flags(given: Sequence[int]) -> Tensor:
        return torch.tensor(given or [0] * (num_windows * length)).view(num_windows, length)

    return Batch(
        obs=below(SPEC.num_obs),
        action=below(SPEC.num_actions),
        reward=below(SPEC.num_rewards),
        next_obs=below(SPEC.num_obs),
        timestep=below(SPEC.max_episode_steps),
        terminated=flags(terminated),
        truncated=flags(truncated),
        optimal_action=below(SPEC.num_actions),
        weight=torch.ones(num_windows, length),
        training_reward=torch.randn(num_windows, length, generator=generator),
    )


def shown(batch: Batch) -> Context:
    """What a model reads of `batch`."""
    return context_of(SPEC, batch.obs, batch.action, batch.reward, batch.timestep)


@torch.no_grad()
def value_at_the_end(network: ValueNetwork, batch: Batch, row: int, step: int) -> float:
    """V of the observation that `step` of a window led to, by one forward over the window up to there."""

    def cut(column: Tensor, last: int) -> Tensor:
        return torch.cat([column[row, : step + 1], torch.tensor([last])])[None]

    late = min(int(batch.timestep[row, step]) + 1, SPEC.max_episode_steps - 1)
    context = context_of(
        SPEC,
        cut(batch.obs, int(batch.next_obs[row, step])),
        cut(batch.action, 0),
        cut(batch.reward, 0),
        cut(batch.timestep, late),
    )
    return float(network(context).value[0, -1])


def described(config: Config = CONFIG, program: str = "train_ilql", tasks: Json = SPLIT) -> Json:
    """As the file of a model says it."""
    about = {"program": program, "config": recorded(config), "env": SPEC._asdict(), "tasks": tasks}
    made_of = {"histories": [{"name": "mine", "sha256": "abc"}], "inputs": {"histories": ["abc"]}}
    return json.loads(json.dumps(about | {"run": RUN} | made_of))


def saved(folder: Path, model: nn.Module, update: int = 3, **about: Any) -> str:
    """The path of a checkpoint that `model` has there, `about` which it says what `described` makes of it."""
    state = {"step": update, "model": model.state_dict(), "updater": {"optimizer": "of then"}}
    checkpoint.save(folder, "last", update, state, described(**about), 1)
    return str(folder / f"last-{update:09d}.pt")


def finish(folder: Path, update: int, program: str = "train_ilql", run: str = RUN) -> None:
    """Say that a run of `program` ended in `folder` at this update."""
    write_owned(folder / "finished.json", Identity(program, run), update, {"updates": update})


def same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
