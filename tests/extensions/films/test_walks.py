"""Walks are those that were played; films show them one after the other or side by side, or as a life above its
curve."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from icrl import extensions
from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import MapView, TensorEnv
from icrl.envs.policies import Chance
from icrl.envs.rooms import STAY, UP
from icrl.evaluation import protocol
from icrl.evaluation.in_context import play_episodes
from icrl.extensions.films import films, walks
from icrl.extensions.films.films import film_agents, write_lives
from icrl.extensions.films.growing_curve import GrowingCurve
from icrl.extensions.films.walks import BACKGROUND, HOLD, MARGIN, SIDE, Walk, film, film_of_life, play, tile, walks_of
from icrl.extensions.maps.render import AGENT, Frames, render_cells

ROOM = MapView(3, 3, (5,))
WALKS = [
    Walk(np.array([4, 5]), np.array([False, True])),
    Walk(np.array([4, 4, 1, 0]), np.zeros(4, bool)),
    Walk(np.array([3, 4, 5]), np.array([False, False, True])),
]


def test_walks_join_up_and_end_where_the_episode_ended() -> None:
    config = load_config(["env.size=3", "env.max_episode_steps=6"])
    env = make_env(config.env)
    adaptation, played = play_episodes(Chance(env.spec), env, env.all_tasks()[:2], 2, num_episodes=6, seed=0)
    for stream in range(4):
        goal = int(env.all_tasks()[stream // 2, 0])
        found = walks_of(env, played, stream, env.all_tasks()[stream // 2], 0)
        for walk, length in zip(found, adaptation.steps_to_goal[stream // 2, stream % 2], strict=False):
            assert walk.cells[0] == 4 and len(walk.cells) == len(walk.rewarded) == length + 1
            np.testing.assert_array_equal(walk.rewarded, walk.cells == goal)
            for here, there in zip(walk.cells, walk.cells[1:], strict=False):
                assert there in {int(env._next_cell[here * 5 + action]) for action in range(5)}
        assert len(found) == (played.terminated | played.truncated)[:, stream].sum()


def drawn(walks: list[Walk]) -> Frames:
    """Each walk drawn as a whole."""
    clips = [render_cells(walk.cells, ROOM, SIDE // 3, walk.rewarded) for walk in walks]
    return np.concatenate([np.concatenate([clip, *[clip[-1:]] * HOLD]) for clip in clips])


@pytest.mark.parametrize("in_parallel", [2, 100])
def test_films_play_one_walk_after_the_other(monkeypatch: pytest.MonkeyPatch, in_parallel: int) -> None:
    """Each walk has its own trail and its end is held, however many frames are drawn at once."""
    monkeypatch.setattr(walks, "AT_ONCE", in_parallel)
    np.testing.assert_array_equal(np.stack([*play([film(WALKS, ROOM)])]), drawn(WALKS))
    together = [*play([film(WALKS[:1], ROOM), film(WALKS, ROOM), film(WALKS[1:], ROOM)])]
    np.testing.assert_array_equal(np.stack(together), tile([drawn(WALKS[:1]), drawn(WALKS), drawn(WALKS[1:])], 2))


WIN, LOSS = WALKS[0]._replace(total=1.0), WALKS[1]


def life_of(monkeypatch: pytest.MonkeyPatch, walked: list[Walk], num_episodes: int) -> tuple[walks.Film, Frames]:
    """Film of a life of which two episodes are watched and at most three are skimmed, and its frames."""
    monkeypatch.setattr(walks, "WATCHED", 2 * (4 + HOLD))
    monkeypatch.setattr(walks, "SKIMMED", 3)
    curve = GrowingCurve([walk.total for walk in walked[:num_episodes]], {"random": 0.2}, (0.0, 1.0))
    made = film_of_life(walked, ROOM, "model", curve)
    return made, np.stack([*play([made])])


def test_a_curve_grows_below_a_life_when_an_episode_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two losses in full, the ends of wins in passing, and the last win in full. The pixels below the room change with
    each point and at no other time."""
    made, frames = life_of(monkeypatch, [LOSS, LOSS, *[WIN] * 4], 6)
    whole = [*[0] * 3, *[1] * (1 + HOLD), *[1] * 3, *[2] * (1 + HOLD)]
    assert list(made.counts) == [*whole, 3, 4, 5, 5, *[6] * (1 + HOLD)]
    names = [*[1] * 8, *[2] * 8, 3, 4, 5, *[6] * 6]
    assert made.titles == [f"model, episode {number}" for number in names]
    room = 22 + SIDE + 36  # with caption and walls
    below = frames[:, room:]
    changed = (below[1:] != below[:-1]).any((1, 2, 3))
    assert changed.tolist() == (np.diff(made.counts) > 0).tolist()
    np.testing.assert_array_equal(frames[-1, 22:room], render_cells(WIN.cells, ROOM, SIDE // 3, WIN.rewarded)[-1])


def test_the_last_episode_of_a_longer_life_follows_its_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source agent goes on after the episodes that the model has; its curve does not, and few ends are shown."""
    made, frames = life_of(monkeypatch, [LOSS] * 100, 9)
    assert list(dict.fromkeys(made.titles)) == [f"model, episode {number}" for number in (1, 2, 3, 6, 9, 100)]
    last = [frame for frame, title in zip(frames, made.titles, strict=True) if title.endswith(" 100")]
    assert len(last) == 4 + HOLD and len({frame[-48:].tobytes() for frame in last}) == 1
    alone, _ = life_of(monkeypatch, [WIN], 1)
    assert list(alone.counts) == [0, *[1] * (1 + HOLD)]


def test_a_long_curve_shows_means() -> None:
    """Of 100 wins and losses in turn the means of two lie halfway, so no point is at the top or the bottom but the
    first."""
    width, in_turn = 200, [0.0, 1.0] * 50
    long, short = (GrowingCurve(returns, {}, (0.0, 1.0)).draw(100, width) for returns in (in_turn, in_turn[:40]))
    rows = [np.flatnonzero((drawn == AGENT).all(-1).sum(1) > 20) for drawn in (long, short)]
    assert len(rows[0]) <= 7 and abs(rows[0].mean() - (22 + 80 - 18) / 2) <= 2
    assert rows[1].max() - rows[1].min() > 30
    assert GrowingCurve([1.0, 1.0], {}, (1.0, 1.0)).draw(2, 41).shape == (48, 41, 3)  # no range, and little room


@pytest.mark.parametrize(
    ("rows", "columns", "number", "height", "width"),
    [
        *((20, 25, 1, 388, 484), (9, 9, 57, 1332, 1332), (3, 3, 1, 252, 252)),
        (64, 64, 64, 2116, 2116),  # with cells of 4 pixels, the smallest
    ],
)
def test_cells_get_smaller_so_that_films_fit(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, number: int, height: int, width: int
) -> None:
    """A clip has at most 480 pixels and all together 1280, plus the walls, and even sides."""
    monkeypatch.setattr(walks, "AT_ONCE", 1)
    walk = Walk(np.arange(9) % (rows * columns), np.zeros(9, bool))
    assert next(play([film([walk], MapView(rows, columns, ()))] * number)).shape == (height, width, 3)


LIFE = ("source.num_learners=2", "source.num_envs=2", "source.num_env_steps=400", "source.history_steps=400")
SHORT = ("source.num_env_steps=1000", "source.history_steps=1000", "evaluation.num_episodes=9", "model.context_len=8")
SMALL = (*LIFE, "source.unroll_length=5", "evaluation.num_episodes=7", "evaluation.num_streams=2")
SOURCES = [
    (["source=a2c", "source.hidden_size=8"], ["model", "A2C"], "dark_room"),
    (["source=a2c", "source.shared=true", "source.num_learners=1"], ["model"], "dark_room"),  # no task has its own
]
if {"async_unrolls", "worlds"} <= {*extensions.NAMES}:
    SOURCES.append((["source=a3c"], ["model"], "bandit"))  # here it cannot do without others


@pytest.mark.parametrize(("source", "names", "world"), SOURCES)
def test_the_model_is_shown_beside_a_source_agent(tmp_path: Path, monkeypatch, source, names, world: str) -> None:
    options = ["env.num_arms=3", "env.num_tasks=30", "tasks.num_train=20", "data.num_development_tasks=2"]
    options = options if world == "bandit" else ["env.size=5", "env.max_episode_steps=10"]
    config = load_config([f"env={world}", *options, *SMALL, *source, "model.context_len=8"])
    if config.source.name == "a3c":
        monkeypatch.setattr(type(config.source), "alone", lambda self: None)
    env, lives, shown, written = make_env(config.env), [], [], []
    tasks = env.all_tasks()[[0, 7, 2, 1, 3]]  # in a room 4, 1, 2, 3 and 3 steps away
    _, played = play_episodes(Chance(env.spec), env, tasks, 2, 7, seed=0)
    monkeypatch.setattr(films, "film_of_life", lambda *given: lives.append(given))
    monkeypatch.setattr(films, "play", lambda shots, columns: shown.append(lives[-len(shots) :]))
    monkeypatch.setattr(films, "write_video", lambda path, frames, fps: written.append(path))
    beside = {"random": [0.1, 0.2, 0.3, 0.4, 0.5]}
    write_lives(config, tmp_path, env, tasks, {"model": played}, beside, torch.device("cpu"))
    chosen = [0, 2, 4] if world == "bandit" else [1, 3, 0]  # the nearest, one between, the farthest
    assert written == [tmp_path / f"{env.label(tasks[index])}.mp4" for index in chosen]
    for shots, index in zip(shown, chosen, strict=True):
        assert [name for _, _, name, _ in shots] == names
        for walked, view, name, curve in shots:
            assert view == env.map_view(tasks[index]) and curve.references == {"random": beside["random"][index]}
            assert len(curve.returns) == 7 and (len(walked) == 7 if name == "model" else len(walked) > 7)
            assert curve.returns == [float(walk.rewarded.sum()) for walk in walked[:7]]


@pytest.mark.parametrize("has_trials", [False, True])
def test_the_guide_names_all_lives_of_a_video(tmp_path: Path, has_trials: bool) -> None:
    config = load_config([f"root={tmp_path}"])
    env = make_env(config.env)
    tasks = env.all_tasks()[[1, 0]]
    video = config.folder("videos") / "in_context" / f"{env.label(tasks[1])}.mp4"
    video.parent.mkdir(parents=True)
    video.touch()
    setup: Any = SimpleNamespace(
        config=config,
        env=env,
        tasks={"held_out": tasks},
        main="held_out",
        suffix="",
        start=object() if has_trials else None,
    )
    first, *others = films.guide(setup)
    assert first.endswith(str(video)) and (protocol.BEFORE in "".join(others)) == has_trials


class Split:
    """Of two learners of each task the first goes up, the second stays; two environments each."""

    def initial_carry(self, num_streams):
        return ()

    def act(self, carry, step, noise):
        first = torch.arange(len(noise)) // 2 % 2 == 0
        return torch.where(first, UP, STAY), carry


@pytest.mark.parametrize(
    ("videos", "at_most", "expected"),
    [
        (0, 9, {}),
        (1, 9, {"goal_0_1_agent_0": 2, "goal_2_1_agent_0": 6, "all_agents": 6}),
        (2, 9, {"goal_0_1_agent_0": 2, "goal_0_1_agent_1": 6, "goal_2_1_agent_0": 6, "goal_2_1_agent_1": 6}),
        (2, 3, {"goal_0_1_agent_0": 2, "goal_0_1_agent_1": 6, "goal_2_1_agent_0": 6}),  # first one for each task
    ],
)
def test_some_agents_of_each_task_are_filmed(tmp_path: Path, monkeypatch, videos, at_most, expected) -> None:
    """With goals above and below the start: the first learner of the first task alone gets there, in one step. A video
    has three episodes, each with the frame of its start and its end held."""
    written = {}

    def write(path: Path, frames, fps: int) -> None:
        assert path.parent == config.folder("videos") / "source" and path.suffix == ".mp4"
        written[path.stem] = len([*frames])

    monkeypatch.setattr(films, "write_video", write)
    monkeypatch.setattr(films, "MOST_VIDEOS", at_most)
    options = ["source.num_learners=2", "source.num_envs=2", f"source.videos_per_task={videos}", *SHORT]
    config = load_config(["env.size=3", "env.max_episode_steps=5", f"root={tmp_path}", *options])
    env = make_env(config.env)
    tasks = env.all_tasks()[[1, 6]]
    film_agents(config, env, tasks, play_episodes(Split(), env, tasks, 4, 10, 0)[1])
    expected = expected | ({"all_agents": 6} if videos else {})
    assert written == {name: 3 * (frames + HOLD) for name, frames in expected.items()}


def test_a_world_without_a_map_has_no_videos(tmp_path: Path, monkeypatch, capsys) -> None:
    config = load_config(["env.size=3", "env.max_episode_steps=5", f"root={tmp_path}", *SHORT])
    env = make_env(config.env)
    tasks, played = env.all_tasks()[[1, 6]], play_episodes(Split(), env, env.all_tasks()[[1, 6]], 4, 10, 0)[1]
    monkeypatch.setattr(type(env), "map_view", TensorEnv.map_view)
    films.tell(config, env)
    assert "map_view" in capsys.readouterr().out
    film_agents(config, env, tasks, played)
    write_lives(config, tmp_path, env, tasks, {"model": played}, {}, torch.device("cpu"))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("num_clips", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (5, 2, 3)])
def test_tiled_clips_stand_row_by_row(num_clips: int, rows: int, columns: int) -> None:
    clips = [np.full((1 + k % 3, 10, 10, 3), k + 100, np.uint8) for k in range(num_clips)]
    grid, step = tile(clips, columns), 10 + MARGIN
    assert grid.shape == (min(3, num_clips), rows * step + MARGIN, columns * step + MARGIN, 3)
    seen = grid[:, MARGIN + 5 :: step, MARGIN + 5 :: step, 0].reshape(len(grid), -1)  # clips' middles
    assert (seen[:, :num_clips] == np.arange(num_clips) + 100).all()
    assert (seen[:, num_clips:] == BACKGROUND[0]).all() and (grid[:, ::step] == BACKGROUND).all()
    assert tile(clips, num_columns=1).shape[1:3] == (num_clips * step + MARGIN, step + MARGIN)
