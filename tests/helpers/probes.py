"""Tiny worlds whose values are known, random transitions, and one plain actor-critic."""

from typing import Any

import torch
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import EnvSpec, Learned, Rollout, Sample, Step
from icrl.envs import make_env
from icrl.envs.core import Outcomes, State, TensorEnv, certain
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds

CPU = torch.device("cpu")
START = Clock(percent=0.0, iterations=0, env_steps=0, updates=0)
SPEC = EnvSpec(num_obs=6, num_actions=3, reward_values=(0.0, 1.0), width=6, max_episode_steps=20)
OTHER_REWARDS = SPEC._replace(reward_values=(0.5, -2.0))


class Probe(TensorEnv):
    """A place is what is seen."""

    def __init__(self, num_obs: int, num_actions: int, max_episode_steps: int, num_starts: int = 1) -> None:
        self.spec = EnvSpec(num_obs, num_actions, (0.0, 1.0), 0, max_episode_steps)
        self.starts = torch.arange(num_starts)

    def optimal_action(self, state: State) -> Tensor:
        return torch.full_like(state.state_index, self.spec.num_actions)


class OneStep(Probe):
    """Reward 1, and the end."""

    def outcomes(self, task: Tensor, place: Tensor, action: Tensor) -> Outcomes:
        return certain(place, torch.ones_like(place), torch.ones_like(place).bool())


class MatchIt(Probe):
    """One step; reward 1 for the action that has the number of the observation, which is drawn anew each time."""

    def outcomes(self, task: Tensor, place: Tensor, action: Tensor) -> Outcomes:
        return certain(place, (action == place).long(), torch.ones_like(place).bool())


class TwoSteps(Probe):
    """Nothing, then reward 1 and the end."""

    def outcomes(self, task: Tensor, place: Tensor, action: Tensor) -> Outcomes:
        return certain((place + 1).clamp(max=1), (place == 1).long(), place == 1)


class Endless(Probe):
    """Reward 1 at each step; only the clock ends it."""

    def outcomes(self, task: Tensor, place: Tensor, action: Tensor) -> Outcomes:
        return certain(place, torch.ones_like(place), torch.zeros_like(place).bool())


ONE_STEP, MATCH_IT, TWO_STEPS, ENDLESS = OneStep(1, 2, 5), MatchIt(2, 2, 5, 2), TwoSteps(2, 1, 5), Endless(1, 1, 2)


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
        reward=below(2),
        next_obs=below(SPEC.num_obs),
        timestep=below(SPEC.max_episode_steps),
        terminated=below(4) == 0,
        truncated=below(4) == 0,
        optimal_action=below(SPEC.num_actions),
    )


def transition(obs: int, action: int, reward: int, next_obs: int, terminated: bool, truncated: bool) -> Rollout:
    """One step of one stream."""
    columns = [torch.tensor([[number]]) for number in (obs, action, reward, next_obs, 0)]
    return Rollout(
        *columns, torch.tensor([[terminated]]), torch.tensor([[truncated]]), torch.tensor([[SPEC.num_actions]])
    )


def sample_of(transitions: Rollout, weight: Tensor | None = None, targets: dict[str, Tensor] | None = None) -> Sample:
    """The streams of `transitions` as windows, of weight 1 if nothing else is said."""
    weight = torch.ones(transitions.obs.shape[1]) if weight is None else weight
    return Sample(transitions, weight, targets or {})


def step_of(obs: Tensor) -> Step:
    """What a stream shows that stands on `obs` `[B]`."""
    zero = torch.zeros_like(obs)
    return Step(obs, zero, zero.bool(), zero.bool(), obs, zero, zero)


def learn_from(learner: Any, transitions: Rollout) -> Learned:
    """One update on all of an unroll."""
    return learner.update(sample_of(transitions, targets=learner.targets(transitions)))


def learn_world(kind: Any, config: Any, env: Probe, num_updates: int) -> Any:
    """A learner that has played `env` in eight environments and learned from every 3 steps of it."""
    learner = kind(config, env.spec, stream_seeds(0, 1), CPU)
    learner.set_clock(START)
    streams = start_streams(learner, env, torch.zeros(8, 1, dtype=torch.long), stream_seeds(1, 8))
    noise = Noise(stream_seeds(2, 8))
    for _ in range(num_updates):
        transitions, streams = rollout(learner, env, streams, 3, noise)
        learn_from(learner, transitions)
    return learner


def alone_and_among_others(kind: Any, config: Any, index: int, rollout_len: int, num_updates: int) -> tuple[Any, Any]:
    """Learner `index` of four, one for each of four tasks with three environments each, after it has played and learned
    alone, and all four; what it lived through must be the same to the bit, and not without reward."""
    room: Any = load_config().env
    env = make_env(replace(room, size=4, random_start=True, max_episode_steps=7))
    tasks = torch.tensor([[0], [6], [9], [15]])

    def live(streams: slice, learners: slice) -> tuple[Rollout, Any]:
        learner = kind(config, env.spec, stream_seeds(0, 4, 2)[learners], CPU)
        learner.set_clock(START)
        where = start_streams(learner, env, tasks.repeat_interleave(3, 0)[streams], stream_seeds(0, 12, 0)[streams])
        noise, lived = Noise(stream_seeds(0, 12, 1)[streams]), []
        for _ in range(num_updates):
            transitions, where = rollout(learner, env, where, rollout_len, noise)
            learn_from(learner, transitions)
            lived.append(transitions)
        return Rollout(*(torch.cat(column) for column in zip(*lived, strict=True))), learner

    streams = slice(3 * index, 3 * index + 3)
    together, all_learners = live(slice(None), slice(None))
    alone, one = live(streams, slice(index, index + 1))
    for column, columns in zip(alone, together, strict=True):
        assert torch.equal(column, columns[:, streams])
    assert alone.reward.sum() > 0
    return one, all_learners


class PlainActorCritic:
    """One learner: an embedding, two linear layers, Adam and PyTorch's own gradient clip."""

    def __init__(self, config: Any, learners: Any, index: int) -> None:
        """As learner `index` is now."""
        self.config, self._network, self._index = config, learners.network, index
        num_obs, hidden = self._network.embedding.shape[1:]
        num_actions = self._network.heads.shape[2] - 1
        self._embedding = nn.Embedding(num_obs, hidden)
        self._actor, self._critic = nn.Linear(hidden, num_actions), nn.Linear(hidden, 1)
        with torch.no_grad():
            self._embedding.weight.copy_(self._network.embedding[index])
            self._actor.weight.copy_(self._network.heads[index, :, :-1].T)
            self._critic.weight.copy_(self._network.heads[index, :, -1:].T)
            self._actor.bias.copy_(self._network.bias[index, 0, :-1])
            self._critic.bias.copy_(self._network.bias[index, 0, -1:])
        self._parameters = [p for layer in (self._embedding, self._actor, self._critic) for p in layer.parameters()]
        betas = (config.adam_beta1, config.adam_beta2)
        self._optimizer = torch.optim.Adam(self._parameters, betas=betas, eps=config.adam_eps)

    def value(self, obs: Tensor) -> Tensor:
        return self._critic(self._embedding(obs))[..., 0]

    def policy(self, obs: Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self._actor(self._embedding(obs)))

    def descend(self, parts: dict[str, Tensor], rates: tuple[float, float, float]) -> dict[str, float]:
        """A step down policy_loss, value_loss and entropy, with rates in the order of learning, value, entropy; the
        metrics."""
        learning_rate, value_coefficient, entropy_coefficient = rates
        loss = parts["policy_loss"] + value_coefficient * parts["value_loss"] - entropy_coefficient * parts["entropy"]
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.param_groups[0]["lr"] = learning_rate
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.max_gradient_norm)
        self._optimizer.step()
        metrics = {name: value.item() for name, value in parts.items()} | {"gradient_norm": norm.item()}
        return metrics | {"learning_rate": learning_rate, "entropy_coefficient": entropy_coefficient}

    def assert_equal(self) -> None:
        """The stacked learner has the same gradient and the same parameters."""
        network, index = self._network, self._index
        heads = torch.cat([self._actor.weight, self._critic.weight])
        gradient = torch.cat([self._actor.weight.grad, self._critic.weight.grad])
        assert torch.allclose(network.heads.grad[index], gradient.T, atol=1e-6)
        assert torch.allclose(network.embedding.grad[index], self._embedding.weight.grad, atol=1e-6)
        assert torch.allclose(network.heads[index], heads.T, atol=1e-5)
        assert torch.allclose(network.embedding[index], self._embedding.weight, atol=1e-5)
        assert torch.allclose(network.bias[index, 0], torch.cat([self._actor.bias, self._critic.bias]), atol=1e-5)
