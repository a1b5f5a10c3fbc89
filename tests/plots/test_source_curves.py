"""Learning curves equal a count by hand of the episodes in the histories."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import TINY
from numpy.typing import NDArray

from icrl.config.compose import load_config
from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import Histories, open_histories
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.exact import random_exact
from icrl.plots import source_agents
from icrl.plots.source_agents import LearningCurves, learning_curves, learning_figure

GOALS, LEARNERS, ENVS, STEPS, LONGEST = 3, 2, 2, 60, 5


@pytest.fixture
def histories() -> Histories:
    """Random lives: episodes end at random, with success, and after `LONGEST` steps; rewards may come at any time."""
    rng = np.random.default_rng(0)
    shape = (GOALS * LEARNERS * ENVS, STEPS)
    columns = {name: np.zeros(shape, np.uint8) for name in Rollout._fields}
    for row in range(shape[0]):
        time = 0
        for step in range(STEPS):
            won, cut = rng.random() < 0.2, time == LONGEST - 1
            columns["timestep"][row, step] = time
            columns["reward"][row, step] = 2 if won else rng.integers(3)
            columns["terminated"][row, step] = won
            columns["truncated"][row, step] = cut and not won
            time = 0 if won or cut else time + 1
    spec = EnvSpec(9, 5, (-1.0, 0.0, 1.0), 3, LONGEST, "goal")
    rows, tasks = {"num_learners": LEARNERS, "num_envs": ENVS}, {"train": list(range(GOALS))}
    return Histories(Path(), {"rows": rows, "tasks": tasks, "env": spec._asdict()}, columns)


def by_hand(histories: Histories, num_points: int) -> NDArray[np.float64]:
    won, ended = np.zeros((2, GOALS, LEARNERS, num_points))
    done = histories.columns["terminated"] | histories.columns["truncated"]
    for row, step in zip(*np.nonzero(done), strict=True):
        place = (*divmod(row // ENVS, LEARNERS), step * num_points // STEPS)
        ended[place] += 1
        won[place] += histories.columns["terminated"][row, step]
    return won / ended


@pytest.mark.parametrize(("asked", "drawn"), [(2, 2), (50, 3)])
def test_success_is_that_of_the_episodes_that_ended(histories: Histories, asked: int, drawn: int) -> None:
    curves = learning_curves(histories, asked)
    np.testing.assert_array_equal(curves.success, by_hand(histories, drawn))
    np.testing.assert_allclose(curves.env_steps, (np.arange(drawn) + 0.5) * STEPS * ENVS / drawn)


@pytest.mark.parametrize(("num_tasks", "shown"), [(7, [6, 4, 3, 2, 0]), (2, [1, 0])])
def test_figure_shows_mean_band_and_tasks_from_fast_to_slow(num_tasks: int, shown: list[int]) -> None:
    success = np.linspace(0, 1, num_tasks * 3 * 4).reshape(num_tasks, 3, 4)  # later tasks are learnt better
    labels = [f"goal_0_{task}" for task in range(num_tasks)]
    figure = learning_figure(LearningCurves(np.arange(4.0), success), labels, random=0.1, title="lives")
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), success.mean((0, 1)))
    *lines, random = right.lines
    np.testing.assert_allclose([line.get_ydata() for line in lines], [success[task].mean(0) for task in shown])
    assert random.get_ydata()[0] == 0.1
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["mean", "5 to 95 % of agents", *(f"goal_0_{task}" for task in shown), "random"]


@pytest.mark.parametrize("planner", [True, False])
def test_the_curves_of_a_run_are_drawn_beside_chance(
    root: Path, monkeypatch: pytest.MonkeyPatch, planner: bool
) -> None:
    """The success of chance is exact, or played where that is not known."""
    config = load_config([*TINY, f"root={root}"])
    env = make_env(config.env)
    train = env.all_tasks()[open_histories(config.folder("histories")).manifest["tasks"]["train"]]
    exact = random_exact(env, train).success.mean().item()
    drawn: list[tuple[list[str], float]] = []
    monkeypatch.setattr(TensorEnv, "has_planner", planner)
    monkeypatch.setattr(source_agents, "CHANCE_EPISODES", 200)

    def draw(curves: LearningCurves, labels: list[str], random: float, *, title: str) -> Any:
        drawn.append((labels, random))
        return learning_figure(curves, labels, random, title=title)

    monkeypatch.setattr(source_agents, "learning_figure", draw)
    path = source_agents.write_learning_curves(config)
    assert path == root / "logs/tiny/source/learning.png" and path.stat().st_size > 0
    ((labels, random),) = drawn
    assert labels == [env.label(task) for task in train]
    assert random == pytest.approx(exact, abs=1e-9 if planner else 0.06) and (random == exact) == planner
