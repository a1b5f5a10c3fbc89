"""Films of environments that draw themselves, and of those that cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import needs

from icrl import extensions
from icrl.contracts import Rollout
from icrl.envs.policies import Chance, Planner
from icrl.evaluation.in_context import play_episodes, seeds_of_play
from icrl.extensions.films.walks import HOLD, Walk, film, frame_pictures, play, walks_of
from icrl.extensions.maps.render import REWARDED

if "from_gymnasium" in extensions.NAMES:
    from toy_env import DRAWN, lake, toy

    from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumEnv

pytestmark = needs("from_gymnasium")


def played_by_chance(**options: Any) -> tuple[GymnasiumEnv, list[list[Walk]], list[Rollout]]:
    """World, walks and transitions of two streams of two tasks each, without a transition table."""
    tasks = [{"slip": 0.1, **options}, {"slip": 0.6, **options}]
    env = GymnasiumEnv(lake(tasks=tasks, id=DRAWN, width=0, success="end"))
    policy, seeds = Chance(env.spec), seeds_of_play(3, 4)
    _, played = play_episodes(policy, env, env.all_tasks(), 2, num_episodes=3, seed=3)
    streams = [Rollout(*(column[:, stream] for column in played)) for stream in range(4)]
    walks = [walks_of(env, played, k, env.all_tasks()[k // 2], int(seeds[k])) for k in range(4)]
    return env, walks, streams


def test_worlds_that_draw_themselves_are_shown_as_they_draw() -> None:
    """Every frame is the picture of the state that was played, with the episode and its return above."""
    env, walks, streams = played_by_chance()
    for of_stream, steps in zip(walks, streams, strict=True):
        made = film(of_stream[:3], env.map_view(env.all_tasks()[0]), "model, episode 9")
        frames = np.stack([*play([made])])
        expected = [np.append(walk.cells, [walk.cells[-1]] * HOLD) for walk in of_stream[:3]]
        assert frames.shape[1:] == (22 + 7 * 20 + 12, 7 * 30 + 12, 3)  # 7 times as large
        np.testing.assert_array_equal(frames[:, 22 + 6 + 7 * 10, 6 + 7 * 15, 0], 40 * np.concatenate(expected))
        np.testing.assert_array_equal((frames[:, -1, 0] == REWARDED).all(-1), made.rewarded)
        total = int(steps.reward[: len(of_stream[0].cells) - 1].sum())
        assert made.titles[0] == f"model, episode 1, return {total}"
    wide = frame_pictures([np.zeros((100, 300, 3), np.uint8)] * 2, np.array([True, False]), room=160)
    assert wide.shape == (2, 50 + 12, 148 + 12, 3)


@pytest.mark.parametrize(("success", "marked"), [("end", 1), ("return", 1), ("survival", 0)])
def test_where_nothing_pays_the_success_stands_out(success: str, marked: int) -> None:
    """The best walk along the cliff has 13 steps."""
    cliff = {"id": "CliffWalking-v1", "tasks": [{}], "width": 0, "reward_values": [-100.0, -1.0]}
    env = GymnasiumEnv(lake(**cliff, success=success, success_return=-13.0, max_episode_steps=20))
    _, played = play_episodes(Planner(), env, env.all_tasks(), 1, num_episodes=2, seed=0)
    for walk in walks_of(env, played, 0, env.all_tasks()[0], 0)[:2]:
        assert walk.told.endswith("return -13") and len(walk.cells) == 14
        assert walk.rewarded.tolist() == [False] * 13 + [bool(marked)]


def test_worlds_that_cannot_be_drawn_are_shown_as_grids(capsys: Any) -> None:
    """A world whose replay differs, and one without pictures; the reason is printed once."""
    env, walks, _ = played_by_chance(fault="memory", at=2)
    made = film(walks[0][:2], env.map_view(env.all_tasks()[0]))
    assert not made.pictures and len({frame.shape for frame in play([made, made])}) == 1
    assert "the same seed and actions led to" in capsys.readouterr().out
    plain = GymnasiumEnv(toy())
    _, played = play_episodes(Chance(plain.spec), plain, plain.all_tasks(), 1, num_episodes=2, seed=0)
    for _ in range(2):
        found = walks_of(plain, played, 0, plain.all_tasks()[0], int(seeds_of_play(0, 1)[0]))
        assert not film(found, plain.map_view(plain.all_tasks()[0])).pictures
    assert capsys.readouterr().out.count("rgb_array is not among its render modes []") == 1
