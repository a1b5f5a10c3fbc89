"""A2C against one plain PyTorch learner, against itself alone, and on environments whose values are known."""

import copy
import dataclasses
from typing import Any, cast

import pytest
import torch
from probes import (
    SPEC,
    START,
    Endless,
    MatchIt,
    OneStep,
    Probe,
    TwoSteps,
    alone_and_among_others,
    random_rollout,
    step_of,
)
from torch import Tensor, nn

from src.config import load_config
from src.contracts import EnvSpec, Rollout
from src.envs.rollout import rollout, start_streams
from src.randomness import Noise, stream_seeds
from src.sources.a2c import A2C
from src.training_schema import A2CConfig

CONFIG = load_config()
CPU = torch.device("cpu")


def source_config(**changes: Any) -> A2CConfig:
    return dataclasses.replace(cast(A2CConfig, CONFIG.source), **changes)


def falling(start: float, end: float) -> dict[str, Any]:
    """A straight line over the first 4 iterations."""
    return {"kind": "linear", "progress": "iterations", "points": [[0, start], [4, end]]}


class PlainLearner:
    """One learner, one sample at a time: an embedding, two linear layers, Adam and PyTorch's own gradient clip."""

    def __init__(self, config: A2CConfig, learners: A2C, index: int) -> None:
        network = learners.network
        num_obs, hidden = network.embedding.shape[1:]
        num_actions = network.heads.shape[2] - 1
        self.config = config
        self.embedding, self.actor, self.critic = (
            nn.Embedding(num_obs, hidden),
            nn.Linear(hidden, num_actions),
            nn.Linear(hidden, 1),
        )
        with torch.no_grad():
            self.embedding.weight.copy_(network.embedding[index])
            self.actor.weight.copy_(network.heads[index, :, :-1].T)
            self.critic.weight.copy_(network.heads[index, :, -1:].T)
            self.actor.bias.copy_(network.bias[index, 0, :-1])
            self.critic.bias.copy_(network.bias[index, 0, -1:])
        self.parameters = [p for layer in (self.embedding, self.actor, self.critic) for p in layer.parameters()]
        betas = (config.adam_beta1, config.adam_beta2)
        self.optimizer = torch.optim.Adam(self.parameters, betas=betas, eps=config.adam_eps)

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(self.embedding(obs))[0]

    def update(
        self, samples: Rollout, learning_rate: float, value_coefficient: float, entropy_coefficient: float
    ) -> dict[str, float]:
        """`samples` `[T, N]` of this learner's environments."""
        num_steps, num_envs = samples.obs.shape
        policy_loss = value_loss = entropy = torch.zeros(())
        for env in range(num_envs):
            ahead = 0.0
            for t in reversed(range(num_steps)):
                if samples.terminated[t, env]:
                    ahead = 0.0
                elif samples.truncated[t, env] or t == num_steps - 1:
                    ahead = self.value(samples.next_obs[t, env]).item()
                ahead = samples.reward[t, env].item() + self.config.discount * ahead
                policy = torch.distributions.Categorical(logits=self.actor(self.embedding(samples.obs[t, env])))
                advantage = ahead - self.value(samples.obs[t, env])
                policy_loss = policy_loss - policy.log_prob(samples.action[t, env]) * advantage.detach()
                value_loss = value_loss + advantage**2
                entropy = entropy + policy.entropy()
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        parts = {name: total / (num_steps * num_envs) for name, total in parts.items()}
        loss = parts["policy_loss"] + value_coefficient * parts["value_loss"] - entropy_coefficient * parts["entropy"]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.param_groups[0]["lr"] = learning_rate
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.max_gradient_norm)
        self.optimizer.step()
        return {name: value.item() for name, value in parts.items()} | {"gradient_norm": norm.item()}


def test_threads_do_not_change_an_update() -> None:
    """As many learners as the default run has, where a gradient added up by threads would depend on their order."""
    num_learners, seen = 570, set()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(4):
            learners = A2C(CONFIG.source, EnvSpec(81, 5, 2, 9, 20), stream_seeds(1, num_learners), CPU)
            generator = torch.Generator().manual_seed(0)
            shape = (10, num_learners * 10)
            columns = [torch.randint(high, shape, generator=generator) for high in (81, 5, 2, 81, 20, 1, 1, 5)]
            learners.set_clock(START)
            learners.update(Rollout(*columns[:5], columns[5].bool(), columns[6].bool(), columns[7]))
            seen.add(tuple(parameter.sum(dtype=torch.float64).item() for _, parameter in learners.parameters()))
    finally:
        torch.set_num_threads(threads)
    assert len(seen) == 1


@pytest.mark.parametrize("max_gradient_norm", [0.05, 50.0])
def test_updates_equal_those_of_a_plain_learner(max_gradient_norm: float) -> None:
    """Loss, gradient and parameters, with the clip at work (0.05) and without; entropy weighs enough to be seen, and
    the rates change from update to update."""
    config = source_config(
        hidden_size=8,
        max_gradient_norm=max_gradient_norm,
        learning_rate=falling(0.012, 0.004),
        value_coefficient=falling(1.0, 0.2),
        entropy_coefficient=falling(0.1, 0.3),
    )
    learners = A2C(config, SPEC, stream_seeds(1, 2), CPU)
    plain = [PlainLearner(config, learners, index) for index in range(2)]
    for update in range(4):
        samples = random_rollout(5, 6, update)
        learners.set_clock(START._replace(iterations=update))
        metrics = learners.update(samples)
        rates = (0.012 - 0.002 * update, 1.0 - 0.2 * update, 0.1 + 0.05 * update)
        for index, one in enumerate(plain):
            own = Rollout(*(column[:, 3 * index : 3 * index + 3] for column in samples))
            expected = one.update(own, *rates) | {"learning_rate": rates[0], "entropy_coefficient": rates[2]}
            assert {name: values[index].item() for name, values in metrics.items()} == pytest.approx(expected, abs=1e-5)
            clipped = expected["gradient_norm"] > max_gradient_norm
            assert clipped == (max_gradient_norm == 0.05)
            network = learners.network
            heads = torch.cat([one.actor.weight, one.critic.weight]).T
            gradient = torch.cat([one.actor.weight.grad, one.critic.weight.grad]).T
            assert torch.allclose(network.heads.grad[index], gradient, atol=1e-6)
            assert torch.allclose(network.embedding.grad[index], one.embedding.weight.grad, atol=1e-6)
            assert torch.allclose(network.heads[index], heads, atol=1e-5)
            assert torch.allclose(network.embedding[index], one.embedding.weight, atol=1e-5)
            assert torch.allclose(network.bias[index, 0], torch.cat([one.actor.bias, one.critic.bias]), atol=1e-5)


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_learner_alone_equals_itself_among_others(index: int) -> None:
    one, all_learners = alone_and_among_others(A2C, source_config(hidden_size=8, learning_rate=0.02), index, 5, 12)
    for ours, theirs in zip(one.network.parameters(), all_learners.network.parameters(), strict=True):
        assert torch.allclose(ours[0], theirs[index], atol=1e-5)


def test_learners_start_differently() -> None:
    embedding = A2C(source_config(), SPEC, stream_seeds(0, 3), CPU).network.embedding
    assert (embedding[0] != embedding[1]).all() and (embedding[1] != embedding[2]).all()


def learn(env: Probe, num_updates: int) -> tuple[Tensor, Tensor]:
    """Probabilities `[S, A]` and values `[S]` after learning with discount 0.5."""
    config = source_config(hidden_size=8, learning_rate=0.02, discount=0.5)
    learner = A2C(config, env.spec, stream_seeds(0, 1), CPU)
    learner.set_clock(START)
    streams = start_streams(learner, env, torch.zeros(8, 1, dtype=torch.long), stream_seeds(1, 8))
    noise = Noise(stream_seeds(2, 8))
    for _ in range(num_updates):
        transitions, streams = rollout(learner, env, streams, 3, noise)
        learner.update(transitions)
    logits, values = learner.network()
    return logits[0].softmax(-1), values[0]


def test_probe_value_of_one_step() -> None:
    _, values = learn(OneStep(1, 1, 5), 200)
    assert values.tolist() == pytest.approx([1.0], abs=0.02)


def test_probe_the_right_action_for_each_observation() -> None:
    probabilities, values = learn(MatchIt(2, 2, 5), 300)
    assert probabilities.diagonal().min() > 0.95
    assert values.min() > 0.9


def test_probe_discounting() -> None:
    _, values = learn(TwoSteps(2, 1, 5), 300)
    assert values.tolist() == pytest.approx([0.5, 1.0], abs=0.03)


def test_probe_truncation_bootstraps() -> None:
    """1 + 1/2 + 1/4 + ... = 2, though an episode is two steps long; with its end as the task's end it were < 1.5."""
    _, values = learn(Endless(1, 1, 2), 300)
    assert values.tolist() == pytest.approx([2.0], abs=0.05)


def test_act_samples_the_policies() -> None:
    """An even grid of noise turns probabilities into counts, for each learner its own."""
    count = 4000
    learners = A2C(source_config(hidden_size=8), SPEC, stream_seeds(0, 2), CPU)
    learners.set_clock(START)
    learners.update(random_rollout(3, 2 * count, 0))  # the table behind act must follow an update
    logits, _ = learners.network()
    noise = ((torch.arange(count) + 0.5) / count).repeat(2)
    for obs in range(SPEC.num_obs):
        action, carry = learners.act(learners.initial_carry(2 * count), step_of(torch.full((2 * count,), obs)), noise)
        assert carry == ()
        said = learners.action_probabilities(torch.full((4,), obs))  # two streams a learner, unlike above
        for index in range(2):
            expected = logits[index, obs].softmax(-1)
            shares = action[index * count : (index + 1) * count].bincount(minlength=3) / count
            assert torch.allclose(shares, expected, atol=2 / count)
            assert torch.allclose(said[2 * index : 2 * index + 2], expected.expand(2, -1))


def test_what_is_shown_of_a_learner() -> None:
    """Names and shapes with the learners first; policies and values of every observation, learner by learner."""
    learners = A2C(source_config(hidden_size=8), SPEC, stream_seeds(0, 2), CPU)
    learners.set_clock(START)
    learners.update(random_rollout(3, 4, 0))
    named = dict(learners.parameters())
    assert set(named) == {"embedding", "heads", "bias"}
    assert all(len(parameter) == 2 and parameter.grad is not None for parameter in named.values())
    logits, values = learners.network()
    outputs = learners.outputs()
    assert torch.allclose(outputs["log_policy"], logits.log_softmax(-1).reshape(12, 3))
    assert torch.allclose(outputs["values"], values.reshape(12))


def test_a_restored_learner_goes_on_as_the_saved_one() -> None:
    config = source_config(hidden_size=8)
    first, second = (A2C(config, SPEC, stream_seeds(seed, 2), CPU) for seed in (0, 1))
    for learner in (first, second):
        learner.set_clock(START)
    first.update(random_rollout(4, 4, 0))
    second.load_state_dict(copy.deepcopy(first.state_dict()))  # as through a file
    noise = torch.linspace(0, 0.999, 4)
    for update in range(1, 4):
        step = step_of(torch.arange(4))
        assert torch.equal(first.act((), step, noise)[0], second.act((), step, noise)[0])
        for learner in (first, second):
            learner.update(random_rollout(4, 4, update))
    for ours, theirs in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_wrong_number_of_streams_is_refused() -> None:
    learners = A2C(source_config(), SPEC, stream_seeds(0, 2), CPU)
    with pytest.raises(ValueError, match="5 streams for 2 learners"):
        learners.initial_carry(5)
