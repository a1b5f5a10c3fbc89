"""Learning curves of histories, against episodes by hand."""

from pathlib import Path

import numpy as np
import pytest
from harness import TINY

from icrl.app.compose import load_config
from icrl.contracts import Rollout
from icrl.data.history_store import Histories, open_histories
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.exact import random_exact
from icrl.extensions.curves import learning_curves as learning
from icrl.extensions.curves.learning_curves import LearningCurves, learning_curves, learning_figure
from icrl.spaces import discrete_spec


@pytest.mark.parametrize(("asked", "drawn"), [(2, 2), (50, 3)])
def test_success_is_that_of_the_episodes_that_ended(asked: int, drawn: int) -> None:
    """Random lives, counted by hand: episodes end at random, with success, and after 5 steps; rewards come any time."""
    rng, life, longest = np.random.default_rng(0), 60, 5
    shape = (3 * 2 * 2, life)  # tasks, learners, environments
    columns = {name: np.zeros(shape, np.uint8) for name in Rollout._fields}
    won, ended = np.zeros((2, 3, 2, drawn))
    for row in range(shape[0]):
        time = 0
        for step in range(life):
            wins, cut = rng.random() < 0.2, time == longest - 1
            found = {"timestep": time, "reward": 2 if wins else rng.integers(3), "terminated": wins}
            for name, value in (found | {"truncated": cut and not wins}).items():
                columns[name][row, step] = value
            place = (*divmod(row // 2, 2), step * drawn // life)
            ended[place] += wins or cut
            won[place] += wins
            time = 0 if wins or cut else time + 1
    spec = discrete_spec(9, 5, (-1.0, 0.0, 1.0), 3, longest, "goal")
    manifest = {"rows": {"num_learners": 2, "num_envs": 2}, "tasks": {"train": [0, 1, 2]}, "env": spec.to_json()}
    curves = learning_curves(Histories(Path(), manifest, columns), asked)
    np.testing.assert_array_equal(curves.mean, won / ended)
    np.testing.assert_allclose(curves.env_steps, (np.arange(drawn) + 0.5) * life * 2 / drawn)


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
def test_the_curves_of_a_run_are_drawn_beside_chance(root: Path, monkeypatch, planner: bool) -> None:
    """The success of chance is exact, or played where that is not known."""
    config, drawn = load_config([*TINY, f"root={root}"]), []
    env = make_env(config.env)
    train = env.all_tasks()[open_histories(config.folder("histories")).manifest["tasks"]["train"]]
    exact = random_exact(env, train).success.mean().item()
    draw = lambda *given, title: drawn.append(given[1:]) or learning_figure(*given, title=title)  # noqa: E731
    monkeypatch.setattr(TensorEnv, "has_planner", planner)
    monkeypatch.setattr(learning, "CHANCE_EPISODES", 200)
    monkeypatch.setattr(learning, "learning_figure", draw)
    path = learning.write_learning_curves(config)
    assert path == root / "logs/tiny/source/learning.png" and path.stat().st_size > 0
    ((labels, random),) = drawn
    assert labels == [env.label(task) for task in train]
    assert random == pytest.approx(exact, abs=1e-9 if planner else 0.06) and (random == exact) == planner
