"""Learned values against exact ones, in games that are small enough to be solved."""

from functools import cache

import torch
from point_learners import at, learners_of
from torch import Tensor

from icrl.point_game.learners import Learner
from icrl.point_game.rules import canonical, is_over, reduce, reposition, shift, subset_of, subsets

Position = tuple[tuple[int, ...], ...]

DEPTH = 4  # moves that the host is looked ahead for
QUICK = (
    *("training.num_games=64", "replay.size=20000", "game.scale_observation=false", "game.max_episode_steps=20"),
    *(
        f"{role}.{option}"
        for role in ("host", "agent")
        for option in (
            *("batch_size=128", "initial_rollout_length=40", "rollout_length=2", "steps_before_rollout=8"),
            *(
                "net_arch=[{width: 128, normalization: layer}, {width: 128}]",
                "epsilon=0.5",
                "steps_before_update_target=20",
            ),
            *(
                "target_update_rate=1",
                "learning_rate={kind: cosine, progress: percent, initial: 5e-3, final: 0, time: 1}",
            ),
        )
    ),
)


def name_of(points: Tensor) -> Position:
    return tuple(map(tuple, canonical(reposition(points[None]))[0].tolist()))


@cache
def after(position: Position, subset: int, axis: int) -> tuple[Position, bool]:
    """Where a move leads to, and whether the game is over there."""
    coords = subset_of(torch.tensor([subset]), len(position[0]))
    moved = reduce(shift(torch.tensor([position]), coords, torch.tensor([axis])))
    return name_of(moved[0]), bool(is_over(moved))


@cache
def of_agent(position: Position, discount: float) -> list[float]:
    """Optimal values of the agent's actions in two dimensions, where there is one subset and every game ends."""
    moves = [after(position, 0, axis) for axis in (0, 1)]
    return [-1.0 if ended else discount * max(of_agent(then, discount)) for then, ended in moves]


@cache
def of_host(position: Position, discount: float, depth: int) -> list[float]:
    """Optimal values of the host's subsets against the agent that answers with the lowest coordinate: discount to the
    power of the fewest moves before the last, as far as `depth` more of them."""
    moves = [after(position, number, int(coords.byte().argmax())) for number, coords in enumerate(subsets(3))]
    ahead = [ended or not depth or max(of_host(then, discount, depth - 1)) for then, ended in moves]
    return [1.0 if ended else discount * best * (depth > 0) for (_, ended), best in zip(moves, ahead, strict=True)]


def train(learner: Learner, num_updates: int) -> list[Position]:
    """Returns some positions that games start in."""
    learner.begin()
    for update in range(num_updates):
        learner.learn(at(update, num_updates))
    return sorted({name_of(points) for points in learner.game.reset(torch.arange(500)).points})


def compare(learner: Learner, positions: list[Position], coords: list[int], exact: list[list[float]]) -> None:
    """Learned values are near the exact ones, and the best action is one of the best."""
    points, best = torch.tensor(positions), torch.tensor(exact)
    seen = torch.cat([learner._see(points), torch.tensor(coords).expand(len(points), -1).float()], 1)
    with torch.no_grad():
        values = learner.network(seen)
    error, regret = (values - best).abs(), best.amax(1) - best.gather(1, values.argmax(1, keepdim=True))[:, 0]
    assert len(points) > 15 and best.unique().numel() > 2
    assert error.mean() < 0.03 and error.max() < 0.25
    assert regret.max() < 1e-6


def test_the_agent_finds_the_exact_values_of_a_small_game() -> None:
    """Two dimensions, three points up to 3: the agent puts the end off by a choice of coordinates."""
    options = ("game.dimension=2", "game.max_num_points=3", "game.max_value=3", "host.player=all_coordinates")
    learner = learners_of(*QUICK, *options, "agent.opponents=host", "agent.discount=0.8")["agent"]
    starts = train(learner, 700)
    compare(learner, starts, [1, 1], [of_agent(start, 0.8) for start in starts])


def test_the_host_finds_the_exact_values_of_a_small_game() -> None:
    """Three dimensions, two points up to 2, against a fixed agent."""
    options = ("game.max_num_points=2", "game.max_value=2", "agent.player=first", "host.opponents=agent")
    learner = learners_of(*QUICK, *options, "host.discount=0.5")["host"]
    starts = train(learner, 700)
    compare(learner, starts, [], [of_host(start, 0.5, DEPTH) for start in starts])
