"""When players that learn do what, with whom, and how they go on from a saved state."""

import copy

import pytest
import torch
from point_learners import CPU, START, at, begun, learners_of

from icrl.config.compose import load_players_config
from icrl.point_game.fixed_players import HOSTS
from icrl.point_game.learners import make_learners, player_of
from icrl.point_game.stopwatch import Stopwatch

ROLES = ("host", "agent")


def test_each_role_and_opponent_has_games_and_luck_of_its_own() -> None:
    seeds = [turn.state.seed for learner in learners_of().values() for turn in learner._turns]
    assert len(seeds) == 4 and len(torch.cat(seeds).unique()) == 4 * 8
    alone = learners_of("host.player=zeillinger", "agent.opponents=zeillinger")["agent"]
    together = learners_of("agent.opponents=zeillinger")["agent"]
    for learner in (alone, together):
        learner.begin()
        learner.learn(START)
    assert all(
        torch.equal(a, b) for a, b in zip(alone.network.parameters(), together.network.parameters(), strict=True)
    )


def test_rollouts_take_the_opponents_in_turn() -> None:
    learner = begun("host", "host.opponents=[first,agent,random]")
    assert learner.replay.size == 3 * 3 * 8 and learner.moves == 72
    before = [turn.state.timestep + 100 * turn.state.episode for turn in learner._turns]
    learner._rollout(START, 1)
    learner._rollout(START, 1)
    after = [turn.state.timestep + 100 * turn.state.episode for turn in learner._turns]
    assert [not torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, True, False]


def test_the_target_network_moves_when_it_is_due() -> None:
    learner = begun("agent", "agent.steps_before_update_target=3", "agent.target_update_rate=1")
    moved = []
    for update in range(6):
        before = copy.deepcopy(learner.target_network.state_dict())
        learner.learn(at(update, 6))
        moved.append(
            any(not torch.equal(before[name], now) for name, now in learner.target_network.state_dict().items())
        )
    assert moved == [False, False, True, False, False, True]
    same = zip(learner.network.parameters(), learner.target_network.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


def test_rollouts_come_when_they_are_due() -> None:
    learner = begun("agent", "agent.steps_before_rollout=2", "agent.rollout_length=3")
    moves = [(learner.learn(at(update, 4)), learner.moves)[1] - 48 for update in range(4)]
    assert moves == [0, 24, 24, 48]


def test_schedules_are_read_at_every_update() -> None:
    """Exploration and learning rate, of each role by itself, and progress in env steps are the role's own moves."""
    curve = "{kind: exponential, progress: updates, initial: 0.5, rate: 0.5, time: 1, final: 0.1}"
    both = learners_of(
        f"host.epsilon={curve}",
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
        for learner in both.values():
            learner.learn(at(update, 6))
        rates.append([group["lr"] for group in both["host"].optimizer.param_groups])
    assert seen["host"] == pytest.approx([0.5 * 0.5**t + 0.1 * (1 - 0.5**t) for t in (2, 5)])
    assert seen["agent"] == [1.0, 0.25]  # after 48 moves, after 64
    assert rates == [pytest.approx([0.3 / (t + 3)] * 2) for t in range(6)]
    assert [group["lr"] for group in both["agent"].optimizer.param_groups] == [0.01, 0.01]


def test_a_fixed_player_is_not_trained() -> None:
    config = load_players_config(["players=tiny", "host.player=zeillinger", "agent.opponents=host"])
    learners = make_learners(config, Stopwatch(False, CPU), CPU)
    assert list(learners) == ["agent"]
    assert player_of("host", config, learners) is HOSTS["zeillinger"] is learners["agent"]._opponents[0]


@pytest.mark.parametrize("role", ROLES)
def test_a_learner_goes_on_where_its_state_was_saved(role: str) -> None:
    overrides = ("replay.kind=prioritised", "host.opponents=[random,first]", "agent.opponents=[zeillinger,random_pair]")
    learner = begun(role, *overrides)
    for update in range(4):
        learner.learn(at(update, 9))
    again = learners_of(*overrides)[role]
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    for update in range(4, 9):
        metrics, metrics_again = (one.learn(at(update, 9)) for one in (learner, again))
        assert metrics == metrics_again
    for name, value in learner.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name])
