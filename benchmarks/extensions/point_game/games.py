"""Games per second of the fused rollout of the polyhedra game, beside loops over single games.

    python -m benchmarks.extensions.point_game.games

One loop is plain Python over lists of tuples (the reference of the tests). The other steps `icrl/PointGameHost-v0`, as
a learner with one environment does. Random pairs play a random agent: 3 coordinates, 20 points up to 20.
"""

from collections.abc import Callable
from random import Random

import gymnasium
import torch

import icrl  # noqa: F401  registers the environments
from benchmarks.measure import Report, side_by_side
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, play
from icrl.randomness import stream_seeds
from tests.helpers import scalar_points

SIZES = {"max_num_points": 20, "dimension": 3, "max_value": 20}
LIMIT, NUM_STREAMS, NUM_STEPS = 100, 4096, 16
GYMNASIUM, PYTHON = "one environment", "plain Python"


def plain_python(num_games: int) -> Callable[[], int]:
    random = Random(0)

    def work() -> int:
        for _ in range(num_games):
            points = scalar_points.start(random, *SIZES.values())
            scalar_points.play(points, scalar_points.random_pair, scalar_points.random_agent, random, LIMIT)
        return num_games

    return work


def single_env(num_games: int) -> Callable[[], int]:
    env, random = gymnasium.make("icrl/PointGameHost-v0", **SIZES, max_episode_steps=LIMIT), Random(0)
    env.reset(seed=0)

    def work() -> int:
        for _ in range(num_games):
            done = False
            while not done:
                _, _, terminated, truncated, _ = env.step(random.randrange(3))  # actions 0 to 2 are the pairs
                done = terminated or truncated
            env.reset()
        return num_games

    return work


def fused(num_streams: int) -> Callable[[], int]:
    game = PointGame(PointGameOptions(max_episode_steps=LIMIT, reposition=False, **SIZES))
    host, agent = HOSTS["random_pair"], AGENTS["random"]
    state = game.ask(host, game.reset(stream_seeds(0, num_streams)))

    def work() -> int:
        nonlocal state
        rollout, state = play(game, host, agent, state, NUM_STEPS)
        return int((rollout.terminated | rollout.truncated).sum())

    return work


def main() -> None:
    torch.set_num_threads(1)
    ways = {GYMNASIUM: single_env(20), PYTHON: plain_python(200), "fused": fused(NUM_STREAMS)}
    title = f"{NUM_STREAMS} games side by side"
    Report("extensions.point_game.games").show(title, side_by_side(ways, rounds=5), "game", GYMNASIUM)


if __name__ == "__main__":
    main()
