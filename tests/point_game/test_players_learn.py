"""Learned values against exact ones, in games that are small enough to be solved."""

from functools import cache

import pytest
import torch
from point_learners import at, learners_of

from icrl.point_game.rules import canonical, is_over, reduce, reposition, shift, subset_of, subsets

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
