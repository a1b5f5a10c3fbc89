"""Acting, targets, updates and schedules of the learners, against loops over single transitions. That they learn is
tested in `test_train_players`."""

import copy

import pytest
import torch
from point_learners import START, at, begun, learners_of
from torch import nn

from icrl.extensions.point_game.fixed_players import HOSTS
from icrl.extensions.point_game.players.learners import Learner, Transitions
from icrl.extensions.point_game.rollout import PointRollout
from icrl.extensions.point_game.rules import canonical, reposition, rescale, subset_of, subsets
from icrl.randomness import mix, stream_seeds, uniform

ROLES = ("host", "agent")


def stored(learner: Learner) -> Transitions:
    """All transitions in the replay."""
    return Transitions(*(column[: learner.replay.size, 0] for column in learner.replay._columns))


def next_rollout(learner: Learner, num_steps: int) -> PointRollout:
    """The next rollout of the learner, as moves `[T * B]`."""
    rollouts: list[PointRollout] = []
    real = learner.transitions
    learner.transitions = lambda rollout: (rollouts.append(rollout), real(rollout))[1]
    learner._rollout(START, num_steps)
    return PointRollout(*(column.flatten(0, 1) for column in rollouts[0]))


def set_values(learner: Learner, values) -> None:
    """Make both networks give all positions the same `values` `[A]`."""
    for network in (learner.network, learner.target_network):
        nn.init.zeros_(network.layers[-1].weight)
        network.layers[-1].bias.data.copy_(values)


@pytest.mark.parametrize("role", ROLES)
def test_targets_equal_a_loop_over_transitions(role: str) -> None:
    """The online network chooses among the legal actions and the target network values it. The end of a game is worth
    nothing more, and its truncation is no end."""
    learner = begun(role, "device.dtype=float64", f"{role}.discount=0.75", "game.max_episode_steps=2")
    for parameter in learner.network.parameters():
        nn.init.normal_(parameter)
    learner.target_network.load_state_dict(learner.network.state_dict())
    for parameter in learner.target_network.layers[-1].parameters():
        parameter.neg_()  # so that the two never agree on an action
    kept = stored(learner)
    assert kept.terminated.any() and not kept.terminated.all()
    for i, y in enumerate(learner.target(kept).tolist()):
        _, _, reward, terminated, after = (column[i] for column in kept)
        online, target = (net(after[None])[0].tolist() for net in (learner.network, learner.target_network))
        legal = range(learner.num_actions) if role == "host" else after[-3:].nonzero()[:, 0].tolist()
        best = max(legal, key=online.__getitem__)
        assert best != max(legal, key=target.__getitem__)
        assert y == pytest.approx(reward.item() + (0 if terminated else 0.75 * target[best]), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_an_illegal_coordinate_is_never_played(epsilon: float) -> None:
    """For values of any size; exploration takes legal coordinates about equally often."""
    learner, table = learners_of("game.dimension=5", "host.player=random_pair")["agent"], subsets(5)
    coords, noise = table[torch.arange(3000) % len(table)], uniform(stream_seeds(4, 3000), 0)
    points = torch.randint(0, 9, (3000, 4, 5), generator=torch.Generator().manual_seed(0))
    for values in (torch.zeros(5), torch.arange(5) * 1e30, torch.arange(5) * -1e30):
        set_values(learner, values)
        axis = learner.player(epsilon)(points, coords, noise)
        assert coords.gather(1, axis[:, None]).all()
        greedy = values.masked_fill(~coords, -torch.inf).argmax(1)
        assert torch.equal(axis[noise >= epsilon], greedy[noise >= epsilon])
        explored = axis[coords[:, 0] & coords[:, 1] & (coords.sum(1) == 2) & (noise < epsilon)]
        assert epsilon == 0 or 0.3 < explored.double().mean() < 0.7


@pytest.mark.parametrize(("role", "changed"), [("host", True), ("agent", True), ("host", False)])
def test_the_replay_holds_the_moves_played(role: str, changed: bool) -> None:
    """The observation is in canonical order and, if asked for, rescaled and repositioned. The agent's next one has the
    subset that is played next. Rewards are +1 and -1 with the end of a game alone."""
    options = [f"game.scale_observation={changed}", f"game.reposition={changed}"]
    learner = begun(role, "game.max_episode_steps=3", *options)
    before, flat = learner.replay.size, next_rollout(learner, 2)
    kept = stored(learner)
    for i in range(len(flat.subset)):
        _, action, reward, ended, _ = (column[before + i] for column in kept)
        assert action == (flat.subset if role == "host" else flat.axis)[i]
        assert ended == flat.terminated[i] and reward == (1 if role == "host" else -1) * ended
        for shown, points, subset in (
            (kept.observation, flat.points, flat.subset),
            (kept.next_observation, flat.next_points, flat.next_subset),
        ):
            seen = canonical(points[i][None])
            seen = (rescale(reposition(seen)) if changed else seen).float().flatten()
            coords = subset_of(subset[i][None], 3)[0].float()
            assert torch.equal(shown[before + i], seen if role == "host" else torch.cat([seen, coords]))
    assert (flat.truncated & ~flat.terminated).any()  # which is stored as no end


def test_an_opponent_does_not_explore() -> None:
    """With epsilon 1 for both, the other side still plays its best action."""
    both = learners_of("host.epsilon=1", "agent.epsilon=1", "host.opponents=agent", "agent.opponents=host")
    for name, learner in both.items():
        learner.begin()
        flat = next_rollout(learner, 6)
        noise = torch.zeros(len(flat.subset))
        greedy_host = both["host"].player()(flat.points, noise)
        greedy_agent = both["agent"].player()(flat.points, subset_of(flat.subset, 3), noise)
        assert torch.equal(flat.subset, greedy_host) == (name == "agent")
        assert torch.equal(flat.axis, greedy_agent) == (name == "host")


def test_an_update_by_hand() -> None:
    """A step of Adam on the mean Huber loss, with the gradient clipped to its norm."""
    learner = begun("host", "host.net_arch=[{width: 5}]", "device.dtype=float64", "host.learning_rate=0.5",
                    "training.max_gradient_norm=0.01", "host.batch_size=50")  # fmt: skip
    set_values(learner, torch.tensor([3.0, 0.2, -0.1, -4.0]))  # on both sides of an error of 1
    reference = copy.deepcopy(learner.network)
    columns = learner.replay.draw(50, mix(learner._key_of_draws, 0), START).rollout
    drawn = Transitions(*(column[0] for column in columns))
    error = reference(drawn.observation)[torch.arange(50), drawn.action] - learner.target(drawn)
    loss = sum(0.5 * e**2 if abs(e) <= 1 else abs(e) - 0.5 for e in error) / 50
    assert (error.abs() > 1).any() and (error.abs() < 1).any()
    loss.backward()
    norm = torch.cat([parameter.grad.flatten() for parameter in reference.parameters()]).norm()
    for parameter in reference.parameters():
        parameter.grad *= 0.01 / (norm + 1e-6)
    torch.optim.Adam(reference.parameters(), 0.5, (0.9, 0.999)).step()
    metrics = learner._update(START)
    assert metrics["loss"].item() == pytest.approx(loss.item())
    assert metrics["gradient_norm"].item() == pytest.approx(norm.item()) and norm > 0.01
    for now, expected in zip(learner.network.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(now, expected)


def test_batch_normalisation_learns_from_the_prediction_alone() -> None:
    """Play, targets and evaluation use the running means and leave them; an update changes the network's once."""
    learner = begun("host")
    norm, slow = (net.layers[1] for net in (learner.network, learner.target_network))
    learner.target(stored(learner))
    learner._rollout(START, 2)
    assert norm.num_batches_tracked == slow.num_batches_tracked == 0
    learner._update(START)
    assert norm.num_batches_tracked == 1 and slow.num_batches_tracked == 0
    assert not torch.equal(norm.running_mean, slow.running_mean)
    assert not any(module.training for net in (learner.network, learner.target_network) for module in net.modules())


def test_each_role_and_opponent_has_games_and_random_numbers_of_its_own() -> None:
    seeds = [state.seed for learner in learners_of().values() for state in learner._states]
    assert len(seeds) == 4 and len(torch.cat(seeds).unique()) == 4 * 8
    alone, together = (begun("agent", "agent.opponents=zeillinger", *more) for more in (["host.player=zeillinger"], []))
    assert alone.learn(START) == together.learn(START)
    assert all(map(torch.equal, alone.network.parameters(), together.network.parameters()))
    fixed = learners_of("host.player=zeillinger", "agent.opponents=host")
    assert list(fixed) == ["agent"] and fixed["agent"]._opponents == [HOSTS["zeillinger"]]


def test_rollouts_and_target_updates_come_when_they_are_due() -> None:
    """Rollouts take the opponents in turn. The target network follows with its running means."""
    learner = begun("agent", "agent.steps_before_rollout=2", "agent.rollout_length=3", "agent.opponents=[zeillinger,"
                    "random_pair]", "agent.steps_before_update_target=3", "agent.target_update_rate=0.25")  # fmt: skip
    assert learner.replay.size == learner.moves == 2 * 3 * 8
    for update, opponent in enumerate((None, 0, None, 1, None, 0)):
        before, states = copy.deepcopy(learner.target_network.state_dict()), [*learner._states]
        learner.learn(at(update, 6))
        rate, fast = 0.25 * (update in (2, 5)), learner.network.state_dict()
        for name, value in learner.target_network.state_dict().items():
            mean = (1 - rate) * before[name] + rate * fast[name]
            torch.testing.assert_close(value, before[name] * 0 + fast[name] if "tracked" in name and rate else mean)
        assert learner.moves == 48 + 24 * ((update + 1) // 2)
        assert [i for i in (0, 1) if learner._states[i] is not states[i]] == ([] if opponent is None else [opponent])
