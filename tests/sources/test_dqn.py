"""DQN against one plain PyTorch learner, against numbers worked out by hand, against itself alone, and on environments
whose values are known. Epsilon-greedy acting, which it shares with Q-learning, is tested there."""

import copy
from typing import Any, cast

import pytest
import torch
from probes import (
    CPU,
    ENDLESS,
    MATCH_IT,
    ONE_STEP,
    OTHER_REWARDS,
    SPEC,
    START,
    TWO_STEPS,
    Probe,
    alone_and_among_others,
    falling,
    learn_from,
    learn_world,
    random_rollout,
    sample_of,
    step_of,
    transition,
)
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.training_schema import DQNConfig
from icrl.contracts import EnvSpec, Rollout
from icrl.randomness import stream_seeds
from icrl.sources.dqn import DQN

CONFIG = load_config(["source=dqn"])


def source_config(**changes: Any) -> DQNConfig:
    return replace(cast(DQNConfig, CONFIG.source), **{"hidden_size": 8} | changes)


def learners_of(num_learners: int, spec: EnvSpec = SPEC, **changes: Any) -> DQN:
    learners = DQN(source_config(**changes), spec, stream_seeds(0, num_learners), CPU)
    learners.set_clock(START)
    return learners


class PlainLearner:
    """One learner, one sample at a time: an embedding, a linear layer, Adam and PyTorch's own gradient clip."""

    def __init__(self, config: DQNConfig, learners: DQN, index: int) -> None:
        self.config, self._stacked, self._index, self._updates = config, learners, index, 0
        self._network, self._target = self._copied(learners.network), self._copied(learners.target_network)
        betas = (config.adam_beta1, config.adam_beta2)
        self._optimizer = torch.optim.Adam(self._network.parameters(), betas=betas, eps=config.adam_eps)

    def _copied(self, stacked: nn.Module) -> nn.Sequential:
        embedding, heads, bias = (parameter[self._index].detach().clone() for parameter in stacked.parameters())
        linear = nn.Linear(*heads.shape)
        with torch.no_grad():
            linear.weight.copy_(heads.T)
            linear.bias.copy_(bias[0])
        return nn.Sequential(nn.Embedding.from_pretrained(embedding, freeze=False), linear)

    def update(
        self, samples: Rollout, weight: Tensor, learning_rate: float, target_rate: float
    ) -> tuple[list[float], dict[str, float]]:
        """`samples` `[T, W]` and `weight` `[W]` of this learner's windows; td_error of each window, and metrics."""
        loss, errors, best = torch.zeros(()), torch.zeros(samples.obs.shape), []
        for t in range(len(samples.obs)):
            for window in range(samples.obs.shape[1]):
                obs, action, reward, next_obs, _, ended, _, _ = (column[t, window] for column in samples)
                with torch.no_grad():
                    values = self._target(next_obs)
                    choose = self._network(next_obs) if self.config.double else values
                    ahead = 0.0 if ended else values[choose.argmax()].item()
                error = OTHER_REWARDS.reward_values[reward] + self.config.discount * ahead - self._network(obs)[action]
                loss = loss + weight[window] * error**2
                errors[t, window] = error.detach().abs()
                best.append(self._network(obs).max().item())
        loss = loss / errors.numel()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.param_groups[0]["lr"] = learning_rate
        norm = nn.utils.clip_grad_norm_(self._network.parameters(), self.config.max_gradient_norm)
        self._optimizer.step()
        self._updates += 1
        if self._updates % self.config.target_update_period == 0:
            with torch.no_grad():
                for slow, fast in zip(self._target.parameters(), self._network.parameters(), strict=True):
                    slow.copy_((1 - target_rate) * slow + target_rate * fast)
        metrics = {"td_error": errors.mean().item(), "value": sum(best) / len(best), "loss": loss.item()}
        metrics |= {"gradient_norm": norm.item(), "learning_rate": learning_rate, "epsilon": 0.25}
        return errors.mean(0).tolist(), metrics

    def assert_equal(self) -> None:
        """The stacked learner has the same networks."""
        pairs = ((self._stacked.network, self._network), (self._stacked.target_network, self._target))
        for stacked, (embedding, linear) in pairs:
            ours = [parameter[self._index] for parameter in stacked.parameters()]
            for theirs, parameter in zip((embedding.weight, linear.weight.T, linear.bias[None]), ours, strict=True):
                assert torch.allclose(parameter, theirs, atol=1e-5)


def scrambled(learners: DQN) -> DQN:
    """Networks and target networks of other parameters, so that they do not agree about what is best."""
    torch.manual_seed(0)
    state = copy.deepcopy(learners.state_dict())
    for name in ("network", "target_network"):
        state[name] = {key: torch.randn_like(value) for key, value in state[name].items()}
    learners.load_state_dict(state)
    return learners


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("max_gradient_norm", "period"), [(0.05, 1), (500.0, 3)])
def test_updates_equal_those_of_a_plain_learner(*, double: bool, max_gradient_norm: float, period: int) -> None:
    """With weights, several steps a window, the clip at work and not, rates that change, and target networks that
    follow at once or every third update."""
    options = {
        "double": double,
        "max_gradient_norm": max_gradient_norm,
        "target_update_period": period,
        "target_update_rate": falling(0.5, 0.9),
        "learning_rate": falling(0.06, 0.02),
        "epsilon": 0.25,
    }
    learners = scrambled(learners_of(2, OTHER_REWARDS, **options))
    plain = [PlainLearner(source_config(**options), learners, index) for index in range(2)]
    for update in range(4):
        learners.set_clock(START._replace(iterations=update))
        samples = random_rollout(2, 8, update)
        weight = torch.rand(8)
        metrics, td_error = learners.update(sample_of(samples, weight))
        assert td_error is not None and not td_error.requires_grad
        for index, one in enumerate(plain):
            windows = slice(4 * index, 4 * index + 4)
            own = Rollout(*(column[:, windows] for column in samples))
            errors, expected = one.update(own, weight[windows], 0.06 - 0.01 * update, 0.5 + 0.1 * update)
            assert td_error[windows].tolist() == pytest.approx(errors, abs=1e-4)
            assert {name: values[index].item() for name, values in metrics.items()} == pytest.approx(expected, abs=1e-4)
            assert (expected["gradient_norm"] > max_gradient_norm) == (max_gradient_norm == 0.05)
            one.assert_equal()


def with_tables(network: list[list[float]], target: list[list[float]], **changes: Any) -> DQN:
    """A learner of six observations and three actions with these values: observations are embedded as unit vectors."""
    learner = learners_of(1, OTHER_REWARDS, hidden_size=6, **changes)
    state = copy.deepcopy(learner.state_dict())
    for name, table in (("network", network), ("target_network", target)):
        rows = torch.tensor(table + [[0.0] * 3] * (6 - len(table)))
        state[name] = {"embedding": torch.eye(6)[None], "heads": rows[None], "bias": torch.zeros(1, 1, 3)}
    learner.load_state_dict(state)
    return learner


@pytest.mark.parametrize(
    ("double", "terminated", "truncated", "target"),
    [
        (False, False, False, -2 + 0.5 * 7),  # the largest of the target network
        (True, False, False, -2 + 0.5 * 3),  # the target's value of what the network thinks best
        (True, True, False, -2),
        (True, False, True, -2 + 0.5 * 3),  # the clock's end bootstraps
        (False, True, True, -2),
    ],
)
def test_targets_by_hand(*, double: bool, terminated: bool, truncated: bool, target: float) -> None:
    """Q(0, 2) = 4, reward -2, discount 0.5; of the next observation the network says 1, 2, 9, its target 5, 7, 3."""
    learner = with_tables(
        [[0.0, 0.0, 4.0], [1.0, 2.0, 9.0]], [[8.0, 8.0, 8.0], [5.0, 7.0, 3.0]], double=double, discount=0.5
    )
    metrics, td_error = learn_from(learner, transition(0, 2, 1, 1, terminated, truncated))
    error = abs(target - 4)
    assert td_error is not None and td_error.item() == pytest.approx(error)
    assert metrics["td_error"].item() == pytest.approx(error)
    assert metrics["loss"].item() == pytest.approx(error**2)
    assert metrics["value"].item() == 4.0
    # (y - Q)^2 changes by 2 * error with Q, and Q by 1 with a bias, 1 with a head, (4, 9) with the embedding
    assert metrics["gradient_norm"].item() == pytest.approx(2 * error * (1 + 1 + 4**2 + 9**2) ** 0.5, rel=1e-4)


def test_weights_scale_the_loss_and_not_the_surprise() -> None:
    learners = scrambled(learners_of(2))
    state = copy.deepcopy(learners.state_dict())
    samples = random_rollout(2, 6, 0)
    whole, td_error = learn_from(learners, samples)
    learners.load_state_dict(state)
    weighted, same = learners.update(sample_of(samples, torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0, 0.0])))
    assert torch.allclose(weighted["loss"], whole["loss"] * torch.tensor([2.0, 0.0]))
    assert td_error is not None and same is not None and torch.equal(td_error, same)
    assert weighted["gradient_norm"][1] == 0


def test_first_actions_are_uniform_and_later_ones_follow_the_values() -> None:
    learners = learners_of(2, epsilon=0.3)
    everywhere = step_of(torch.arange(6).repeat(2))
    assert torch.allclose(learners.action_probabilities(everywhere), torch.full((12, 3), 1 / 3))
    learn_from(learners, random_rollout(3, 4, 0))
    values = learners.network().flatten(0, 1)
    probabilities = learners.action_probabilities(everywhere)
    assert not probabilities.requires_grad
    assert torch.equal(probabilities.argmax(-1), values.argmax(-1))
    assert torch.allclose(probabilities.amax(-1), torch.full((12,), 0.1 + 0.7))
    noise = torch.linspace(0, 0.999, 12)
    actions, _ = learners.act(learners.initial_carry(12), everywhere, noise)
    assert actions.tolist() == [
        sum(noise[i].item() >= p for p in row.cumsum(0)[:-1].tolist()) for i, row in enumerate(probabilities)
    ]


def test_what_is_shown_of_a_learner() -> None:
    learners = learners_of(2)
    learn_from(learners, random_rollout(3, 4, 0))
    named = dict(learners.parameters())
    assert set(named) == {"embedding", "heads", "bias"}
    assert all(len(parameter) == 2 and parameter.grad is not None for parameter in named.values())
    values = learners.outputs()["q_values"]
    assert torch.equal(values, learners.network().flatten(0, 1)) and not values.requires_grad
    assert learners.targets(random_rollout(3, 4, 0)) == {}


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_learner_alone_equals_itself_among_others(index: int) -> None:
    one, all_learners = alone_and_among_others(DQN, source_config(learning_rate=0.02, epsilon=0.3), index, 2, 30)
    for name in ("network", "target_network"):
        pairs = zip(getattr(one, name).parameters(), getattr(all_learners, name).parameters(), strict=True)
        assert all(torch.allclose(ours[0], theirs[index], atol=1e-5) for ours, theirs in pairs)


def learn(env: Probe, num_updates: int) -> Tensor:
    """`[S, A]` after learning with discount 0.5 from random actions."""
    config = source_config(discount=0.5, epsilon=1.0, learning_rate=0.02, target_update_rate=0.2)
    return learn_world(DQN, config, env, num_updates).outputs()["q_values"]


def test_probe_value_of_one_step() -> None:
    assert learn(ONE_STEP, 150)[0].tolist() == pytest.approx([1.0, 1.0], abs=0.02)


def test_probe_the_right_action_for_each_observation() -> None:
    assert torch.allclose(learn(MATCH_IT, 200), torch.eye(2), atol=0.02)


def test_probe_discounting() -> None:
    assert learn(TWO_STEPS, 250).flatten().tolist() == pytest.approx([0.5, 1.0], abs=0.02)


def test_probe_truncation_bootstraps() -> None:
    """1 + 1/2 + 1/4 + ... = 2, though an episode is two steps long; with its end as the task's end it were < 1.5."""
    assert learn(ENDLESS, 250).item() == pytest.approx(2.0, abs=0.02)


def test_a_restored_learner_goes_on_as_the_saved_one() -> None:
    """Saved between two copies to the target network."""
    rate = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [1, 0.0]]}
    options = {"epsilon": rate, "target_update_period": 2, "learning_rate": 0.05, "target_update_rate": 0.5}
    first, second = learners_of(2, **options), scrambled(learners_of(2, **options))
    first.set_clock(START._replace(percent=0.8))
    for update in range(3):
        learn_from(first, random_rollout(4, 4, update))
    second.load_state_dict(copy.deepcopy(first.state_dict()))  # as through a file
    step = step_of(torch.arange(4))
    for update in range(3, 8):
        assert torch.equal(first.action_probabilities(step), second.action_probabilities(step))
        for learner in (first, second):
            learn_from(learner, random_rollout(4, 4, update))
        for name in ("network", "target_network"):
            pairs = zip(getattr(first, name).parameters(), getattr(second, name).parameters(), strict=True)
            assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_a_wrong_number_of_streams_is_refused() -> None:
    with pytest.raises(ValueError, match="5 streams for 2 learners"):
        learners_of(2).initial_carry(5)
