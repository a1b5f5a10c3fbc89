"""The live map shows the steps that a policy takes, each in the same place of a notebook's output."""

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from installed import needs
from PIL import Image

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.evaluation.in_context import play_episodes
from icrl.extensions.maps.render import AGENT, GOALS, REWARDED, WALL
from icrl.extensions.moved_goal import live_map
from icrl.extensions.moved_goal.live_map import HOLD, live_frames, watch
from icrl.plots.style import PALETTE, Frame

DRAWS = True  # charts are compared
CONFIG = load_config(["env.size=3", "env.max_episode_steps=5"])
ROOM = make_env(CONFIG.env)
CELL, TOP, LEFT = live_map.SIDE // 3, 22 + live_map.SIDE // 3 // 4, live_map.SIDE // 3 // 4  # below caption and wall
WIDTH = 3 * CELL + CELL % 2 + 2 * LEFT  # of the map


def pixel(frame: Frame, cell: int, corner: bool = False) -> tuple[int, ...]:
    """Colour in the middle, or near a corner, of a cell."""
    row, column = divmod(cell, 3)
    inside = 3 if corner else CELL // 2
    return tuple(frame[TOP + row * CELL + inside, LEFT + column * CELL + inside].tolist())


def has_color(chart: Frame, color: str) -> bool:
    wanted = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])
    rows = slice(0, chart.shape[0] * 2 // 3)  # above the legend
    return bool((abs(chart[rows].astype(int) - wanted).max(2) < 3).any())


def test_each_step_of_play_is_a_frame() -> None:
    """The same streams are played as in an evaluation; the last frame of an episode is held."""
    policy, goal = Chance(ROOM.spec), ROOM.all_tasks()[:1]
    frames = [*live_frames(policy, ROOM, [(0, 0)], num_episodes=6, seed=3)]
    adaptation, played = play_episodes(policy, ROOM, goal, 1, num_episodes=6, seed=3)
    lengths, success = adaptation.lengths[0, 0].astype(int), adaptation.success[0, 0]
    assert 0 < success.sum() < 6, "both outcomes are seen"
    assert len(frames) == lengths.sum() + 6 * HOLD
    at, step = 0, 0
    for episode, length in enumerate(lengths):
        shown = frames[at : at + length + HOLD]
        for k, frame in enumerate(shown[:length]):
            assert pixel(frame, int(played.next_obs[step + k, 0])) == AGENT
            is_end = k == length - 1
            found = is_end and success[episode]
            assert tuple(frame[TOP - 2, LEFT + 5].tolist()) == (REWARDED if found else WALL)
            before = frames[at - 1] if at else shown[0]
            assert np.array_equal(frame[:, WIDTH:], before[:, WIDTH:]) != (is_end and length + at > 1), "the chart"
        assert all(np.array_equal(one, shown[-1]) for one in shown[length:])
        at, step = at + length + HOLD, step + length
    assert has_color(frames[-1][:, WIDTH:], PALETTE[0]) and has_color(frames[-1][:, WIDTH:], PALETTE[1])


def test_goal_moves_after_half_of_the_episodes() -> None:
    frames = [*live_frames(Chance(ROOM.spec), ROOM, [(0, 0)], num_episodes=2, then=[(2, 1)])]
    goals = [[cell for cell in (0, 7) if pixel(frame, cell, corner=True) == GOALS[0]] for frame in frames]
    moved = goals.index([7])
    assert 0 < moved < len(frames) and goals == [[0]] * moved + [[7]] * (len(frames) - moved)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"task": [(1, 1)]}, r"task=\[\(1, 1\)\].*8 tasks"),  # the start
        ({"task": [(0, 0)], "then": [9]}, r"then=\[9\]"),
        ({"task": [(0, 0)], "num_episodes": 0}, "num_episodes=0: must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        next(live_frames(Chance(ROOM.spec), ROOM, **{"num_episodes": 2, **given}))


@needs("from_gymnasium")
def test_worlds_without_a_map_are_refused() -> None:
    config = load_config(["env=gymnasium", "env.width=0"])
    env = make_env(config.env)
    with pytest.raises(ConfigError, match="no map"):
        next(live_frames(Chance(env.spec), env, env.all_tasks()[0].tolist(), num_episodes=2))


def test_frames_are_shown_in_one_place_and_not_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, slept, now = list[Any](), list[float](), [100.0]
    handle = SimpleNamespace(update=shown.append)
    monkeypatch.setattr(live_map, "display", lambda picture, display_id: shown.append(picture) or handle)
    monkeypatch.setattr(live_map.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def frames() -> Iterator[Frame]:
        for number in range(4):
            now[0] += 1.0 if number == 2 else 0.01  # the third takes longer than a frame may
            yield np.full((4, 6, 3), 50 * number, np.uint8)

    monkeypatch.setattr(live_map.time, "sleep", sleep)
    watch(frames(), frames_per_second=10)
    read = [np.asarray(Image.open(io.BytesIO(picture.data))) for picture in shown]
    np.testing.assert_array_equal(np.stack(read), np.stack([*frames()]))
    assert slept == pytest.approx([0, 0.09, 0, 0.09])
