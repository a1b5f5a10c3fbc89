"""A2C against one plain PyTorch learner, against itself alone, and on environments whose values are known."""

import copy
from typing import Any, cast

import pytest
import torch
from probes import (
    CPU,
    OTHER_REWARDS,
    SPEC,
    START,
    PlainActorCritic,
    alone_and_among_others,
    falling,
    learn_from,
    random_rollout,
    step_of,
)

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.training_schema import A2CConfig
from icrl.contracts import EnvSpec, Rollout
from icrl.randomness import stream_seeds
from icrl.sources.a2c import A2C

CONFIG = load_config()


def source_config(**changes: Any) -> A2CConfig:
    return replace(cast(A2CConfig, CONFIG.source), **changes)


class PlainLearner(PlainActorCritic):
    """One sample at a time."""

    def update(self, samples: Rollout, rates: tuple[float, float, float]) -> dict[str, float]:
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
                ahead = OTHER_REWARDS.reward_values[samples.reward[t, env]] + self.config.discount * ahead
                policy = self.policy(samples.obs[t, env])
                advantage = ahead - self.value(samples.obs[t, env])
                policy_loss = policy_loss - policy.log_prob(samples.action[t, env]) * advantage.detach()
                value_loss = value_loss + advantage**2
                entropy = entropy + policy.entropy()
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return self.descend({name: total / (num_steps * num_envs) for name, total in parts.items()}, rates)


def test_threads_do_not_change_an_update() -> None:
    """As many learners as the default run has, where a gradient added up by threads would depend on their order."""
    num_learners, seen = 570, set()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(4):
            learners = A2C(CONFIG.source, EnvSpec(81, 5, (0.0, 1.0), 9, 20), stream_seeds(1, num_learners), CPU)
            generator = torch.Generator().manual_seed(0)
            shape = (10, num_learners * 10)
            columns = [torch.randint(high, shape, generator=generator) for high in (81, 5, 2, 81, 20, 1, 1, 5)]
            learners.set_clock(START)
            learn_from(learners, Rollout(*columns[:5], columns[5].bool(), columns[6].bool(), columns[7]))
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
    learners = A2C(config, OTHER_REWARDS, stream_seeds(1, 2), CPU)
    plain = [PlainLearner(config, learners, index) for index in range(2)]
    for update in range(4):
        samples = random_rollout(5, 6, update)
        learners.set_clock(START._replace(iterations=update))
        learned = learn_from(learners, samples)
        assert learned.td_error is None
        rates = (0.012 - 0.002 * update, 1.0 - 0.2 * update, 0.1 + 0.05 * update)
        for index, one in enumerate(plain):
            own = Rollout(*(column[:, 3 * index : 3 * index + 3] for column in samples))
            expected = one.update(own, rates)
            got = {name: values[index].item() for name, values in learned.metrics.items()}
            assert got == pytest.approx(expected, abs=1e-5)
            assert (expected["gradient_norm"] > max_gradient_norm) == (max_gradient_norm == 0.05)
            one.assert_equal()


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_learner_alone_equals_itself_among_others(index: int) -> None:
    one, all_learners = alone_and_among_others(A2C, source_config(hidden_size=8, learning_rate=0.02), index, 5, 12)
    for ours, theirs in zip(one.network.parameters(), all_learners.network.parameters(), strict=True):
        assert torch.allclose(ours[0], theirs[index], atol=1e-5)


def test_learners_start_differently() -> None:
    embedding = A2C(source_config(), SPEC, stream_seeds(0, 3), CPU).network.embedding
    assert (embedding[0] != embedding[1]).all() and (embedding[1] != embedding[2]).all()


def test_act_samples_the_policies() -> None:
    """An even grid of noise turns probabilities into counts, for each learner its own."""
    count = 4000
    learners = A2C(source_config(hidden_size=8), SPEC, stream_seeds(0, 2), CPU)
    learners.set_clock(START)
    learn_from(learners, random_rollout(3, 2 * count, 0))  # the table behind act must follow an update
    logits = learners.network()[..., :-1]
    noise = ((torch.arange(count) + 0.5) / count).repeat(2)
    for obs in range(SPEC.num_obs):
        action, carry = learners.act(learners.initial_carry(2 * count), step_of(torch.full((2 * count,), obs)), noise)
        assert carry == ()
        said = learners.action_probabilities(step_of(torch.full((4,), obs)))  # two streams a learner, unlike above
        for index in range(2):
            expected = logits[index, obs].softmax(-1)
            shares = action[index * count : (index + 1) * count].bincount(minlength=3) / count
            assert torch.allclose(shares, expected, atol=2 / count)
            assert torch.allclose(said[2 * index : 2 * index + 2], expected.expand(2, -1))


def test_what_is_shown_of_a_learner() -> None:
    """Names and shapes with the learners first; policies and values of every observation, learner by learner."""
    learners = A2C(source_config(hidden_size=8), SPEC, stream_seeds(0, 2), CPU)
    learners.set_clock(START)
    learn_from(learners, random_rollout(3, 4, 0))
    named = dict(learners.parameters())
    assert set(named) == {"embedding", "heads", "bias"}
    assert all(len(parameter) == 2 and parameter.grad is not None for parameter in named.values())
    logits, values = learners.network().split([3, 1], dim=-1)
    outputs = learners.outputs()
    assert torch.allclose(outputs["log_policy"], logits.log_softmax(-1).reshape(12, 3))
    assert torch.allclose(outputs["values"], values.reshape(12))


def test_a_restored_learner_goes_on_as_the_saved_one() -> None:
    config = source_config(hidden_size=8)
    first, second = (A2C(config, SPEC, stream_seeds(seed, 2), CPU) for seed in (0, 1))
    for learner in (first, second):
        learner.set_clock(START)
    learn_from(first, random_rollout(4, 4, 0))
    second.load_state_dict(copy.deepcopy(first.state_dict()))  # as through a file
    noise = torch.linspace(0, 0.999, 4)
    for update in range(1, 4):
        step = step_of(torch.arange(4))
        assert torch.equal(first.act((), step, noise)[0], second.act((), step, noise)[0])
        for learner in (first, second):
            learn_from(learner, random_rollout(4, 4, update))
    for ours, theirs in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_wrong_number_of_streams_is_refused() -> None:
    learners = A2C(source_config(), SPEC, stream_seeds(0, 2), CPU)
    with pytest.raises(ValueError, match="5 streams for 2 learners"):
        learners.initial_carry(5)
