"""Tiny worlds whose values are known, random transitions, learners with any options, and a plain actor-critic."""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import Rollout, Sample, Step, UpdateResult
from icrl.envs import make_env
from icrl.envs.core import Outcomes, State, TensorEnv, certain
from icrl.envs.rollout import rollout, start_streams
from icrl.nn.networks import ADAM_BETAS, ADAM_EPS
from icrl.randomness import Noise, stream_seeds
from icrl.sources import source_class
from icrl.sources import source_options as all_sources
from icrl.spaces import EnvSpec, discrete_spec

CPU = torch.device("cpu")
START = Clock(percent=0.0, iterations=0, env_steps=0, updates=0)
SPEC = discrete_spec(num_obs=6, num_actions=3, reward_values=(0.0, 1.0), width=6, max_episode_steps=20)
OTHER_REWARDS = SPEC._replace(reward_values=(0.5, -2.0))


class Probe(TensorEnv):
    """World with one rule: `outcomes` gives the next state, the reward and whether the task ended."""

    def __init__(self, num_obs: int, num_actions: int, max_episode_steps: int, rule: Any, num_starts: int = 1) -> None:
        self.spec = discrete_spec(num_obs, num_actions, (0.0, 1.0), 0, max_episode_steps)
        self.starts, self._rule = torch.arange(num_starts), rule

    def optimal_action(self, state: State) -> Tensor:
        return torch.full_like(state.inner, self.spec.num_actions)

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        return certain(*self._rule(state_index, action))


# Reward 1 and the end; reward 1 for the action with the number of the observation; nothing, then reward 1 and the end;
# reward 1 at each step until the clock ends the episode.
ONE_STEP = Probe(1, 2, 5, lambda s, a: (s, torch.ones_like(s), s >= 0))
MATCH_IT = Probe(2, 2, 5, lambda s, a: (s, (a == s).long(), s >= 0), num_starts=2)
TWO_STEPS = Probe(2, 1, 5, lambda s, a: ((s + 1).clamp(max=1), (s == 1).long(), s == 1))
ENDLESS = Probe(1, 1, 2, lambda s, a: (s, torch.ones_like(s), s < 0))


changed: Any = replace  # a copy of an object with options, some of them changed


@cache
def _preset(name: str) -> Any:
    if name not in all_sources():
        pytest.skip(f"the source {name} is not installed")
    return load_config([f"source={name}"]).source


def source_options(name: str, **changes: Any) -> Any:
    """Options of the preset `name`; networks are small."""
    preset = _preset(name)
    return changed(preset, **({"hidden_size": 8} if hasattr(preset, "hidden_size") else {}) | changes)


def learners_of(name: str, num_learners: int, spec: EnvSpec = SPEC, seed: int = 0, **changes: Any) -> Any:
    """Fresh learners of the source `name` at the start of a run."""
    learners = source_class(name)(source_options(name, **changes), spec, stream_seeds(seed, num_learners), CPU)
    learners.set_clock(START)
    return learners


def restored(learners: Any, fresh: Any) -> Any:
    """`fresh` with the state of `learners`, as it comes from a file."""
    fresh.load_state_dict(copy.deepcopy(learners.state_dict()))
    return fresh


def falling(start: float, end: float) -> dict[str, Any]:
    """A straight line over the first 4 iterations."""
    return {"kind": "linear", "progress": "iterations", "points": [[0, start], [4, end]]}


def random_rollout(num_steps: int, num_streams: int, seed: int) -> Rollout:
    generator = torch.Generator().manual_seed(seed)

    def below(high: int) -> Tensor:
        return torch.randint(high, (num_steps, num_streams), generator=generator)

    return Rollout(
        obs=below(SPEC.num_obs),
        action=below(SPEC.num_actions),
        reward=SPEC.reward_of(below(2)),
        next_obs=below(SPEC.num_obs),
        timestep=below(SPEC.max_episode_steps),
        terminated=below(4) == 0,
        truncated=below(4) == 0,
        optimal_action=below(SPEC.num_actions),
    )


def transition(obs: int, action: int, reward: int, next_obs: int, terminated: bool, truncated: bool) -> Rollout:
    """One step of one stream."""
    row = (obs, action, reward, next_obs, 0, terminated, truncated, SPEC.num_actions)
    return Rollout(*(torch.tensor([[value]]) for value in row))


def sample_of(transitions: Rollout, weight: Tensor | None = None, targets: dict[str, Tensor] | None = None) -> Sample:
    """The streams of `transitions` as windows, of weight 1 if nothing else is said."""
    weight = torch.ones(transitions.obs.shape[1]) if weight is None else weight
    return Sample(transitions, weight, targets or {})


def step_of(obs: Tensor) -> Step:
    """What a stream shows that stands on `obs` `[B]`."""
    zero = torch.zeros_like(obs)
    return Step(obs, zero, zero.bool(), zero.bool(), obs, zero, zero)


def learn_from(learner: Any, transitions: Rollout, carry: Any = ()) -> UpdateResult:
    """One update on all of an unroll, before which the streams remembered `carry`."""
    return learner.update(sample_of(transitions, targets=learner.targets(transitions, carry)))


def learn_world(learner: Any, env: Any, num_updates: int, num_steps: int = 3, num_streams: int = 8) -> Any:
    """`learner` after it has played `env` in so many environments and learned from every `num_steps` of it."""
    tasks = torch.zeros(num_streams, 1, dtype=torch.long)
    streams = start_streams(learner, env, tasks, stream_seeds(1, num_streams))
    noise = Noise(stream_seeds(2, num_streams))
    for _ in range(num_updates):
        before = streams.carry
        transitions, streams = rollout(learner, env, streams, num_steps, noise)
        learn_from(learner, transitions, before)
    return learner


def alone_and_among_others(
    name: str, rollout_len: int, num_updates: int, indices: Sequence[int] = (0, 3), **changes: Any
) -> tuple[dict[int, Any], Any]:
    """Those of four learners with these `indices`, each after it has played and learned alone, and all four, one for
    each of four tasks with three environments each; what each lived through must be the same to the bit, and not
    without reward."""
    config = load_config(["env.size=4", "env.random_start=true", "env.max_episode_steps=7"])
    config = changed(config, source=source_options(name, **changes))
    env, tasks = make_env(config.env), torch.tensor([[0], [6], [9], [15]])

    def make(learners: slice) -> Any:
        return source_class(name).create(config, env, tasks[learners], stream_seeds(0, 4, 2)[learners], CPU)

    others, together = _lived(make, env, tasks, slice(0, 4), rollout_len, num_updates)
    lone = dict[int, Any]()
    for index in indices:
        lone[index], alone = _lived(make, env, tasks, slice(index, index + 1), rollout_len, num_updates)
        own = slice(3 * index, 3 * index + 3)
        assert all(torch.equal(column, columns[:, own]) for column, columns in zip(alone, together, strict=True))
        assert alone.reward.sum() > 0
    return lone, others


def _lived(
    make: Callable[[slice], Any], env: Any, tasks: Tensor, learners: slice, rollout_len: int, num_updates: int
) -> tuple[Any, Rollout]:
    """Those of the `learners` of four tasks, with three streams each, and what they lived through."""
    learner, streams = make(learners), slice(3 * learners.start, 3 * learners.stop)
    learner.set_clock(START)
    where = start_streams(learner, env, tasks.repeat_interleave(3, 0)[streams], stream_seeds(0, 12, 0)[streams])
    noise, lived = Noise(stream_seeds(0, 12, 1)[streams]), []
    for _ in range(num_updates):
        before = where.carry
        transitions, where = rollout(learner, env, where, rollout_len, noise)
        learn_from(learner, transitions, before)
        lived.append(transitions)
    return learner, Rollout.joined(lived)


class Plain:
    """Learner `index` of `learners` as it is now, by itself: an embedding, a linear layer, PyTorch's Adam and clip."""

    def __init__(self, learners: Any, index: int) -> None:
        self.config, self._stacked, self._index = learners.config, learners, index
        self.network = self.copied("network")
        self._optimizer = torch.optim.Adam(self.network.parameters(), betas=ADAM_BETAS, eps=ADAM_EPS)

    def copied(self, name: str) -> nn.Sequential:
        """The learner's network `name`."""
        stacked = getattr(self._stacked, name).parameters()
        embedding, heads, bias = (parameter[self._index].detach().clone() for parameter in stacked)
        linear = nn.Linear(*heads.shape)
        with torch.no_grad():
            linear.weight.copy_(heads.T)
            linear.bias.copy_(bias[0])
        return nn.Sequential(nn.Embedding.from_pretrained(embedding, freeze=False), linear)

    def policy(self, obs: Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.network(obs)[..., :-1])

    def value(self, obs: Tensor) -> Tensor:
        return self.network(obs)[..., -1]

    def descend(self, loss: Tensor, learning_rate: float) -> float:
        """A step down `loss`; the norm of its gradient."""
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.param_groups[0]["lr"] = learning_rate
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.config.max_gradient_norm)
        self._optimizer.step()
        return norm.item()

    def assert_equal(self, name: str, network: nn.Sequential) -> None:
        """The learner's network `name` has the parameters of `network`."""
        for ours, theirs in zip(self.copied(name).parameters(), network.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


def check_alone_and_among_others(name: str, env: TensorEnv, **changes: Any) -> None:
    """Learner 2 of four of the source `name`, with a task and three streams of its own, lives and learns up to rounding
    as it does alone, and every parameter learns."""
    seeds = stream_seeds(0, 4, 2)

    def make(learners: slice) -> Any:
        return source_class(name)(source_options(name, **changes), env.spec, seeds[learners], CPU)

    tasks = env.all_tasks().repeat(4, 1)[:4]
    one, alone = _lived(make, env, tasks, slice(2, 3), 8, 6)
    others, together = _lived(make, env, tasks, slice(0, 4), 8, 6)
    for column_name, column, columns in zip(Rollout._fields, alone, together, strict=True):
        assert torch.allclose(column, columns[:, 6:9], atol=1e-4, equal_nan=True), column_name
    for (parameter, ours), (_, theirs) in zip(one.parameters(), others.parameters(), strict=True):
        assert torch.allclose(ours[0], theirs[2], atol=1e-5), parameter
    fresh = dict(make(slice(0, 4)).parameters())
    assert all((value != fresh[parameter]).flatten(1).any(1).all() for parameter, value in others.parameters())
