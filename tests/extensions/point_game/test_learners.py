"""Acting, targets, updates and schedules of the learners, against loops over single transitions; learned values against
exact ones, in games that are small enough to be solved."""

import copy
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from point_learners import CPU, START, at, begun, learners_of
from torch import nn

from icrl.app.compose import compose_config
from icrl.config.options import replace
from icrl.extensions.point_game.fixed_players import HOSTS
from icrl.extensions.point_game.players.learners import Learner, Transitions, transition_replay
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.extensions.point_game.rollout import PointRollout
from icrl.extensions.point_game.rules import canonical, is_over, reduce, reposition, rescale, shift, subset_of, subsets
from icrl.extensions.value_sources.replay import stratified
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
    """One step on the mean weighted Huber loss, with the gradient clipped to its norm; errors are new priorities."""
    learner = begun("host", "host.optimizer=sgd", "host.momentum=0",
                    "host.net_arch=[{width: 5}]", "device.dtype=float64", "host.learning_rate=0.5",
                    "training.max_gradient_norm=0.01", "host.batch_size=50", "replay.kind=prioritised")  # fmt: skip
    told, weight = [], torch.linspace(0, 1, 50, dtype=torch.float64)
    draw, tell = learner.replay.draw, learner.replay.set_priorities
    learner.replay.draw = lambda *given: draw(*given)._replace(weight=weight[None])
    learner.replay.set_priorities = lambda where, error, clock: (told.append(error[0]), tell(where, error, clock))
    set_values(learner, torch.tensor([3.0, 0.2, -0.1, -4.0]))  # on both sides of an error of 1
    reference = copy.deepcopy(learner.network)
    columns = learner.replay.draw(50, mix(learner._key_of_draws, 0), START).rollout
    drawn = Transitions(*(column[0] for column in columns))
    error = reference(drawn.observation)[torch.arange(50), drawn.action] - learner.target(drawn)
    loss = sum(w * (0.5 * e**2 if abs(e) <= 1 else abs(e) - 0.5) for e, w in zip(error, weight, strict=True)) / 50
    assert (error.abs() > 1).any() and (error.abs() < 1).any()
    gradients = torch.autograd.grad(loss, list(reference.parameters()))
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    metrics = learner._update(START)
    assert metrics["loss"].item() == pytest.approx(loss.item())
    torch.testing.assert_close(told[0], error.abs().detach())
    assert metrics["gradient_norm"].item() == pytest.approx(norm.item()) and norm > 0.01
    for now, before, gradient in zip(learner.network.parameters(), reference.parameters(), gradients, strict=True):
        torch.testing.assert_close(now, before - 0.5 * gradient * 0.01 / (norm + 1e-6))


def test_batch_normalisation_learns_from_the_prediction_alone() -> None:
    """Play, targets and evaluation use the running means and leave them; an update changes the network's once."""
    learner = begun("host")
    norm, slow = (net.layers[1] for net in (learner.network, learner.target_network))
    learner.target(stored(learner))
    learner._rollout(START, 2)
    assert norm.num_batches_tracked == slow.num_batches_tracked == 0
    mean = norm.running_mean.clone()
    learner._update(START)
    assert norm.num_batches_tracked == 1 and slow.num_batches_tracked == 0
    assert not torch.equal(norm.running_mean, mean) and torch.equal(slow.running_mean, mean)
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


def test_schedules_are_read_at_every_update() -> None:
    """Each role has its own exploration and learning rate, and its `env_steps` are its own moves."""
    both = learners_of(
        "host.epsilon={kind: exponential, progress: updates, initial: 0.5, rate: 0.5, time: 1, final: 0.1}",
        "host.learning_rate={kind: inverse, progress: updates, initial: 0.1, rate: 0.3}",
        "agent.epsilon={kind: step, progress: env_steps, points: [[60, 1.0], [61, 0.25]]}",
        "agent.learning_rate=0.01",
    )
    seen: dict[str, list[float]] = {name: [] for name in both}
    for name, learner in both.items():
        learner.begin()
        real = learner.player
        learner.player = lambda epsilon=0.0, name=name, real=real: (seen[name].append(epsilon), real(epsilon))[1]
    rates = []
    for update in range(6):
        host, _ = (learner.learn(at(update, 6)) for learner in both.values())
        assert {group["lr"] for group in both["agent"].optimizer.param_groups} == {0.01}
        rates.append([host["learning_rate"].item(), *(group["lr"] for group in both["host"].optimizer.param_groups)])
    assert seen["host"] == pytest.approx([0.5 * 0.5**t + 0.1 * (1 - 0.5**t) for t in (2, 5)])
    assert seen["agent"] == [1.0, 0.25]  # after 48 moves, after 64
    assert rates == [pytest.approx([0.3 / (t + 3)] * 3) for t in range(6)]


# ---- games that are solved

DEPTH = 4  # moves of the host that the exact values look ahead
QUICK = ("training.num_games=64", "replay.size=20000", "game.scale_observation=false", "game.max_episode_steps=20")
ROLE = (
    *("batch_size=128", "initial_rollout_length=40", "rollout_length=2", "steps_before_rollout=8", "epsilon=0.5"),
    *("net_arch=[{width: 128, normalization: layer}, {width: 128}]", "steps_before_update_target=20"),
    *("target_update_rate=1", "learning_rate={kind: cosine, progress: percent, initial: 5e-3, final: 0, time: 1}"),
)
# The agent's game has two coordinates and three points up to 3, the host's three coordinates and two points up to 2.
AGENT = ("game.dimension=2", "game.max_num_points=3", "game.max_value=3", "host.player=all_coordinates",
         "agent.opponents=host", "agent.discount=0.8")  # fmt: skip
HOST = ("game.max_num_points=2", "game.max_value=2", "agent.player=first", "host.opponents=agent", "host.discount=0.5")


def position_of(points):
    return tuple(map(tuple, canonical(reposition(points[None]))[0].tolist()))


@cache
def after(position, subset, axis):
    """Position after a move, and whether the game is over there."""
    coords = subset_of(torch.tensor([subset]), len(position[0]))
    moved = reduce(shift(torch.tensor([position]), coords, torch.tensor([axis])))
    return position_of(moved[0]), bool(is_over(moved))


@cache
def values_of_agent(position):
    """Optimal values of the agent's actions in two dimensions, where there is one subset and every game ends."""
    moves = [after(position, 0, axis) for axis in (0, 1)]
    return [-1.0 if ended else 0.8 * max(values_of_agent(then)) for then, ended in moves]


@cache
def values_of_host(position, depth=DEPTH):
    """Optimal values of the host's subsets against the agent that answers with the lowest coordinate: discount to the
    power of the fewest moves before the last, as far as `depth` more of them."""
    moves = [after(position, number, int(coords.byte().argmax())) for number, coords in enumerate(subsets(3))]
    ahead = [ended or not depth or max(values_of_host(then, depth - 1)) for then, ended in moves]
    return [1.0 if ended else 0.5 * best * (depth > 0) for (_, ended), best in zip(moves, ahead, strict=True)]


SMALL_GAMES = [("agent", AGENT, values_of_agent, [1, 1]), ("host", HOST, values_of_host, [])]


@pytest.mark.parametrize(("role", "options", "values", "coords"), SMALL_GAMES)
def test_on_starts_a_learner_finds_the_exact_values_and_one_of_the_best_actions(role, options, values, coords) -> None:
    every = (f"{name}.{option}" for name in ("host", "agent") for option in ROLE)
    learner = learners_of(*QUICK, *every, *options)[role]
    learner.begin()
    for update in range(700):
        learner.learn(at(update, 700))
    starts = sorted({position_of(points) for points in learner.game.reset(torch.arange(500)).points})
    points, best = torch.tensor(starts), torch.tensor([values(start) for start in starts])
    observation = torch.cat([learner._see(points), torch.tensor(coords).expand(len(points), -1).float()], 1)
    with torch.no_grad():
        learned = learner.network(observation)
    error, regret = (learned - best).abs(), best.amax(1) - best.gather(1, learned.argmax(1, keepdim=True))[:, 0]
    assert len(points) > 15 and best.unique().numel() > 2
    assert error.mean() < 0.03 and error.max() < 0.25 and regret.max() < 1e-6


# ---- replay of transitions against a plain list of those that were added

UNIFORM = compose_config(PlayersConfig, []).replay
PRIORITISED = replace(UNIFORM, kind="prioritised", beta=0.7)
KEY = stream_seeds(1, 1)[0]


def numbered(first: int, count: int) -> Transitions:
    """Columns of transitions that say their number in every field."""
    number = torch.arange(first, first + count)[:, None]
    row = torch.stack([number, number + 0.5], 2)
    return Transitions(row, number, -number.float(), number % 3 == 0, row + 0.25)


@pytest.mark.quick
@pytest.mark.parametrize("config", [UNIFORM, PRIORITISED])
@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 9), counts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_the_newest_are_kept_and_drawn_whole(config: object, size: int, counts: list[int]) -> None:
    """Uniform draws are stratified over the slots."""
    replay, added = transition_replay(replace(config, size=size), 2, torch.float32, CPU), 0
    for count in counts:
        replay.add(numbered(added, count))
        added += count
    drawn = replay.draw(200, KEY, START)
    numbers = drawn.rollout.action[0].tolist()
    assert replay.size == min(added, size) and set(numbers) == set(range(max(0, added - size), added))
    for column, every in zip(drawn.rollout, numbered(0, added), strict=True):
        assert column.dtype == every.dtype and torch.equal(column, every[numbers].transpose(0, 1))
    assert drawn.weight.tolist() == [[1.0] * 200]
    if config == UNIFORM:
        assert drawn.where[0].tolist() == [int(share * replay.size) for share in stratified(200, KEY).tolist()]
