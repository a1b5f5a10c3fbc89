"""Acting, targets, updates and schedules of the players that learn, against loops over single transitions."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from point_learners import START, begun, learners_of
from torch import Tensor, nn

from icrl.config.schedules import Clock
from icrl.point_game.learners import Learner
from icrl.point_game.rollout import PointRollout
from icrl.point_game.rules import canonical, reposition, rescale, subset_of, subsets
from icrl.point_game.transitions import Transitions, drawn_transitions
from icrl.randomness import stream_seeds, uniform
from icrl.rl.double_q import blend

ROLES = ("host", "agent")


def everything(learner: Learner) -> Transitions:
    """All that is kept."""
    return Transitions(*(column[: learner.replay.size, 0] for column in learner.replay._columns))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_targets_are_those_of_a_loop_over_transitions(role: str, discount: float) -> None:
    """In float64: the online network chooses among what is legal, the target network values it, the end of a game is
    worth nothing more and its truncation is no end."""
    learner = begun(role, "device.dtype=float64", f"{role}.discount={discount}", "game.max_episode_steps=2")
    for parameter in learner.network.parameters():
        nn.init.normal_(parameter)
    learner.target_network.load_state_dict(learner.network.state_dict())
    for parameter in learner.target_network.layers[-1].parameters():
        parameter.neg_()  # so that the two never agree on an action
    kept = everything(learner)
    assert kept.terminated.any() and not kept.terminated.all()
    chosen_by_target = 0
    for i, y in enumerate(learner.target(kept).tolist()):
        _, _, reward, terminated, after = (column[i] for column in kept)
        online, target = (net(after[None])[0].tolist() for net in (learner.network, learner.target_network))
        legal = range(learner.num_actions) if role == "host" else after[-3:].nonzero()[:, 0].tolist()
        best = max(legal, key=online.__getitem__)
        chosen_by_target += best == max(legal, key=target.__getitem__)
        expected = reward.item() + (0 if terminated else discount * target[best])
        assert y == pytest.approx(expected, abs=1e-12)
    assert chosen_by_target == 0


def values_of_nothing_but(learner: Learner, value: Tensor) -> None:
    """Make both networks give all positions the same values `[A]`."""
    for network in (learner.network, learner.target_network):
        last = network.layers[-1]
        nn.init.zeros_(last.weight)
        last.bias.data.copy_(value)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 5), st.floats(0, 1), st.integers(0, 2**31), st.data())
def test_an_illegal_coordinate_is_never_played(dimension: int, epsilon: float, seed: int, data: st.DataObject) -> None:
    """Whatever the network thinks of it, and with any epsilon; who explores takes legal ones about equally often."""
    learner = DIMENSIONS[dimension]
    values = torch.tensor([data.draw(st.floats(-1e30, 1e30)) for _ in range(dimension)])
    values_of_nothing_but(learner, values)
    table = subsets(dimension)
    coords = table[torch.arange(3000) % len(table)]
    points = torch.randint(0, 9, (3000, 4, dimension), generator=torch.Generator().manual_seed(seed))
    noise = uniform(stream_seeds(seed, 3000), 0)
    axis = learner.player(epsilon)(points, coords, noise)
    assert coords.gather(1, axis[:, None]).all()
    greedy = values.masked_fill(~coords, -torch.inf).argmax(1)
    assert torch.equal(axis[noise >= epsilon], greedy[noise >= epsilon])
    explored = axis[coords[:, 0] & coords[:, 1] & (coords.sum(1) == 2) & (noise < epsilon)]
    if len(explored) > 50:
        assert 0.2 < explored.double().mean() < 0.8


DIMENSIONS = {n: learners_of(f"game.dimension={n}", "host.player=random_pair")["agent"] for n in (3, 4, 5)}


def test_a_huge_value_of_an_illegal_coordinate_leaves_the_target_alone() -> None:
    learner = begun("agent", "agent.opponents=random_pair")
    kept = everything(learner)
    without = kept._replace(next_observation=kept.next_observation.clone().index_fill_(1, torch.tensor([12, 13]), 1.0))
    without.next_observation[:, -1] = 0.0  # {0, 1} everywhere
    expected = learner.target(without)
    for network in (learner.network, learner.target_network):
        network.layers[-1].bias.data[2] = 1e9
    assert torch.equal(learner.target(without), expected)
    learner.network.layers[-1].bias.data[2] = torch.inf
    assert torch.equal(learner.target(without), expected)


def test_no_illegal_move_is_ever_kept() -> None:
    learner = begun("agent", "agent.epsilon=1", "training.num_games=50", "replay.size=1000")
    kept = everything(learner)
    assert kept.observation[:, -3:].gather(1, kept.action[:, None]).eq(1).all()


@pytest.mark.parametrize("role", ROLES)
def test_what_is_kept_is_what_was_played(role: str) -> None:
    """The observation in canonical order, rescaled; the agent's next one with the subset that is played next; rewards
    of +1 and -1 with the end of a game alone."""
    learner = begun(role, "game.max_episode_steps=3")
    rollouts: list[PointRollout] = []
    learner.transitions = lambda rollout: (rollouts.append(rollout), type(learner).transitions(learner, rollout))[1]
    before = learner.replay.size
    learner._rollout(START, 2)
    (rollout,), kept = rollouts, everything(learner)
    fields = [column.flatten(0, 1) for column in rollout]
    points, subset, axis, next_points, next_subset, terminated, *_ = fields
    for i in range(len(subset)):
        _, action, reward, ended, _ = (column[before + i] for column in kept)
        assert action == (subset if role == "host" else axis)[i]
        assert ended == terminated[i] and reward == (1 if role == "host" else -1) * ended
        for shown, where, turn in (
            (kept.observation, points, subset),
            (kept.next_observation, next_points, next_subset),
        ):
            seen = rescale(reposition(canonical(where[i][None])))[0].float().flatten()
            coords = subset_of(turn[i][None], 3)[0].float()
            assert torch.equal(shown[before + i], seen if role == "host" else torch.cat([seen, coords]))
    goes_on = ~(rollout.terminated | rollout.truncated)[0]
    assert torch.equal(rollout.next_subset[0][goes_on], rollout.subset[1][goes_on])
    assert (rollout.truncated & ~rollout.terminated).any()  # which is kept as no end


def test_without_rescaling_networks_see_the_numbers_themselves_less_the_least() -> None:
    learner = learners_of("game.scale_observation=false", "game.reposition=false")["host"]
    points = torch.tensor([[[3, 0, 2], [-1, -1, -1], [5, 1, 1], [-1, -1, -1]]])
    assert learner._see(points).tolist() == [[5, 1, 1, 3, 0, 2] + [-1] * 6]
    learner = learners_of("game.scale_observation=false", "game.reposition=true")["host"]
    assert learner._see(points).tolist() == [[2, 1, 0, 0, 0, 1] + [-1] * 6]


def test_only_the_role_whose_rollout_it_is_explores() -> None:
    """With epsilon 1 for both, the other side still plays its best action."""
    both = learners_of("host.epsilon=1", "agent.epsilon=1", "host.opponents=agent", "agent.opponents=host")
    for learner in both.values():
        learner.begin()
    rollouts: dict[str, PointRollout] = {}
    for name, learner in both.items():
        real = learner.transitions
        learner.transitions = lambda rollout, name=name, real=real: (rollouts.update({name: rollout}), real(rollout))[1]
        learner._rollout(START, 6)
    for name, rollout in rollouts.items():
        points, subset, axis = (part.flatten(0, 1) for part in (rollout.points, rollout.subset, rollout.axis))
        noise = torch.zeros(len(subset))
        greedy_host = both["host"].player()(points, noise)
        greedy_agent = both["agent"].player()(points, subset_of(subset, 3), noise)
        assert torch.equal(subset, greedy_host) == (name == "agent")
        assert torch.equal(axis, greedy_agent) == (name == "host")


def test_an_update_by_hand() -> None:
    """One step of gradient descent on the mean Huber loss, with the gradient cut to its norm."""
    learner = begun("host", "host.optimizer=sgd", "host.momentum=0", "host.adam_beta1=0", "host.adam_beta2=0",
                    "host.net_arch=[{width: 5}]", "device.dtype=float64", "host.learning_rate=0.5",
                    "training.max_gradient_norm=0.01", "host.batch_size=50")  # fmt: skip
    values_of_nothing_but(learner, torch.tensor([3.0, 0.2, -0.1, -4.0]))  # on both sides of an error of 1
    reference = copy.deepcopy(learner.network)
    drawn = drawn_transitions(learner.replay.draw(50, _key_of(learner, 0), START).rollout)
    target = learner.target(drawn)
    error = reference(drawn.observation)[torch.arange(50), drawn.action] - target
    loss = sum(0.5 * e**2 if abs(e) <= 1 else abs(e) - 0.5 for e in error) / 50
    assert (error.abs() > 1).any() and (error.abs() < 1).any()
    gradients = torch.autograd.grad(loss, list(reference.parameters()))
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    metrics = learner._update(START)
    assert metrics["loss"].item() == pytest.approx(loss.item())
    assert metrics["gradient_norm"].item() == pytest.approx(norm.item()) and norm > 0.01
    for now, before, gradient in zip(learner.network.parameters(), reference.parameters(), gradients, strict=True):
        torch.testing.assert_close(now, before - 0.5 * gradient * 0.01 / (norm + 1e-6))


def _key_of(learner: Learner, updates: int) -> Tensor:
    keys: list[Tensor] = []
    real, learner.replay.draw = (
        learner.replay.draw,
        lambda number, key, clock: (keys.append(key), real(number, key, clock))[1],
    )
    saved = copy.deepcopy(learner.network.state_dict()), copy.deepcopy(learner.optimizer.state_dict())
    learner._update(Clock(0, updates, 0, updates))
    learner.network.load_state_dict(saved[0])
    learner.optimizer.load_state_dict(saved[1])
    learner.replay.draw = real
    return keys[0]


def test_weights_of_prioritised_replay_scale_the_loss_and_errors_come_back() -> None:
    learner = begun("agent", "replay.kind=prioritised", "replay.alpha=1", "replay.eps=0.5")
    weights: list[Tensor] = []
    td_errors: list[Tensor] = []
    real, tell = learner.replay.draw, learner.replay.set_priorities

    def draw(*arguments: object) -> object:
        drawn = real(*arguments)
        weights.append(torch.linspace(0, 1, 8))
        return drawn._replace(weight=weights[0][None])

    learner.replay.draw = draw
    learner.replay.set_priorities = lambda where, td_error, clock: (
        td_errors.append(td_error),
        tell(where, td_error, clock),
    )
    loss = learner._update(START)["loss"]
    errors = td_errors[0][0]
    huber = torch.where(errors <= 1, errors**2 / 2, errors - 0.5)
    torch.testing.assert_close(loss, (weights[0] * huber).mean())
    assert not torch.equal(learner.replay._priorities.values[0], torch.ones(200))


def test_batch_normalisation_learns_from_the_prediction_alone() -> None:
    """Play, targets and evaluation take running means as they are, and leave them so; an update changes those of the
    network once."""
    learner = begun("host")
    norm, slow = (net.layers[1] for net in (learner.network, learner.target_network))
    assert isinstance(norm, nn.BatchNorm1d) and norm.num_batches_tracked == 0
    learner.target(everything(learner))
    learner._rollout(START, 2)
    assert norm.num_batches_tracked == slow.num_batches_tracked == 0
    mean = norm.running_mean.clone()
    learner._update(START)
    assert norm.num_batches_tracked == 1 and slow.num_batches_tracked == 0
    assert not torch.equal(norm.running_mean, mean) and torch.equal(slow.running_mean, mean)
    assert not any(module.training for net in (learner.network, learner.target_network) for module in net.modules())


def test_the_target_network_follows_by_its_rate_with_running_means() -> None:
    slow, fast = (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) for _ in range(2))
    fast(torch.randn(9, 2))
    before = copy.deepcopy(slow.state_dict())
    blend(slow, fast, 0.25)
    for name, value in slow.state_dict().items():
        if name.endswith("tracked"):
            assert value == 1
        else:
            torch.testing.assert_close(value, 0.75 * before[name] + 0.25 * fast.state_dict()[name])
