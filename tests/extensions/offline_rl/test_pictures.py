"""Pictures of offline RL show the critic's values, the weights of the objective, and the results of evaluations."""

from pathlib import Path

import critics
import numpy as np
import pytest
import results
import torch
from critics import LENGTH, SPEC, batch_of, critic_of
from gymnasium.spaces import Discrete, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from matplotlib.quiver import Quiver
from PIL import Image
from space_worlds import LISTED, spec_of, window_of

from icrl.app.compose import compose_config, load_config
from icrl.contracts import Batch, ConfigError
from icrl.envs import make_env
from icrl.extensions.offline_rl import pictures as plots
from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.critics import make_critic
from icrl.extensions.offline_rl.curves import critic_figure, write_value_curves
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import Window, context_of
from icrl.plots import style

CRITIC = critic_of().target


@settings(max_examples=8)
@given(lived_len=st.integers(0, 2 * LENGTH), seed=st.integers(0, 99))
def test_values_are_those_of_a_window_that_ends_on_the_cell(lived_len: int, seed: int) -> None:
    batch = batch_of(1, lived_len + 1, seed)
    columns = Window.of(batch)
    lived = columns.at((0, np.s_[:lived_len]))
    found = plots.cell_values(CRITIC, lived, torch.arange(SPEC.num_obs))
    newest = range(max(0, lived_len - (LENGTH - 1)), lived_len)
    for cell in range(SPEC.num_obs):
        ends = zip(columns, (cell, 1, 1, 0), strict=True)  # the last action and reward are not read
        rows = [([*column[0, newest], last], column.dtype) for column, last in ends]
        window = [torch.tensor([row], dtype=dtype) for row, dtype in rows]
        with torch.no_grad():
            values = CRITIC(context_of(Window(*window)))
        torch.testing.assert_close(found.value[cell], values.value[0, -1])
        assert int(found.best[cell]) == int(torch.minimum(*values.q[:, 0, -1]).argmax())


def test_maps_show_values_and_moves() -> None:
    env = make_env(load_config(["env=dark_room_permuted", "env.size=3", "env.random_start=false"]).env)
    tasks = env.all_tasks()[[0, 7 * 120 + 3]]  # goals 0 and 8
    values, best = torch.rand(2, 3, 9), torch.randint(5, (2, 3, 9))
    maps = [[*map(plots.CellValues, *row)] for row in zip(values, best, strict=True)]
    figure = plots.maps_figure(env, tasks, maps, "values")
    for number, cells in enumerate([*maps[0], *maps[1]]):
        axes, goal = figure.axes[number], (0, 8)[number // 3]
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), cells.value.reshape(3, 3))
        assert (image.norm.vmin, image.norm.vmax) == (float(values.min()), float(values.max()))
        (arrows,) = [one for one in axes.collections if isinstance(one, Quiver)]
        for cell, action in enumerate(cells.best.tolist()):
            state, _ = env.reset(tasks[number // 3, None], torch.zeros(1, dtype=torch.long))
            moved, _ = env.move(state._replace(inner=torch.tensor([cell])), torch.tensor([action]))[:2]
            assert (arrows.X[cell], arrows.Y[cell]) == (cell % 3, cell // 3)
            assert (cell % 3 + arrows.U[cell], cell // 3 + arrows.V[cell]) == (int(moved) % 3, int(moved) // 3)
        star, ring = axes.lines
        assert star.get_xydata().tolist() == [[goal % 3, goal // 3]] and ring.get_xydata().tolist() == [[1, 1]]
    assert figure.axes[1].get_title().endswith("reached once")


@pytest.fixture
def config(tmp_path: Path):
    """Configuration of a finished critic with its initial weights."""
    config = compose_config(OfflineConfig, ["experiment=tiny", "device=cpu", f"root={tmp_path}"])
    spec = make_env(config.env).spec
    about = critics.described(config) | {"env": spec.to_json()}
    tasks = {"all": [[n] for n in range(24)], "train": [*range(20)], "held_out": [20, 21, 23], "development": []}
    weights = make_critic(config, spec).state_dict()
    critics.save_finished(tmp_path / "logs/tiny/ilql", weights, about=about | {"tasks": tasks})
    return config


def test_the_critic_watches_a_searcher_find_goals(config, tmp_path: Path, monkeypatch) -> None:
    seen, real = [], plots.cell_values
    spy = lambda critic, lived, obs: seen.append(lived) or real(critic, lived, obs)  # noqa: E731
    monkeypatch.setattr(plots, "cell_values", spy)
    config.name = "other"  # the picture is beside the critic all the same
    path = plots.write_value_maps(config)
    assert path == tmp_path / "logs" / "tiny" / "ilql" / "values.png" and not (tmp_path / "logs" / "other").exists()
    with Image.open(path) as image:
        assert image.size == (300, 200)  # a quarter, see `blank`
    assert [int(lived.reward.sum()) for lived in seen] == [0, 1, 4] * 2  # how often it was rewarded
    # The last goal takes the searcher 40 steps: with a step on the map itself they do not fit into a context of 40.
    assert [len(lived.timestep) for lived in seen[2::3]] == [12, 8]
    assert all(lived.reward[-1] == 1 for lived in seen[2::3])


def test_maps_that_cannot_be_drawn_are_refused(config, tmp_path: Path) -> None:
    for options, message in (
        (["experiment=tiny", "evaluation.num_episodes=3"], "evaluation.num_episodes=3: must be enough"),
        (["experiment=tiny", "env.max_episode_steps=11"], "env.max_episode_steps"),
        (["env=gymnasium"], r"env(\.name)?=gymnasium"),
    ):
        with pytest.raises(ConfigError, match=message):
            plots.write_value_maps(compose_config(OfflineConfig, [*options, "device=cpu", f"root={tmp_path}"]))


def test_the_figure_shows_the_weights() -> None:
    generator = np.random.default_rng(0)
    advantage = generator.normal(size=4000)
    part = generator.integers(3, 6, 4000)  # the others are empty
    optimal = generator.random(4000) < 0.3
    weight = np.minimum(np.exp(advantage), 2)
    figure = plots.weights_figure(plots.Weights(advantage, advantage, weight, part, optimal), 2.0, "title")
    effective, clipped = weight.sum() ** 2 / (weight**2).sum() / 4000, np.mean(advantage > np.log(2))
    assert f"effective sample size {effective:.0%}, {clipped:.1%} clipped" in figure.get_suptitle()
    _, middle, right = figure.axes
    assert middle.lines[0].get_xdata() == pytest.approx([np.log10(2)] * 2)
    for line, mask in zip(right.lines, (optimal, ~optimal), strict=True):
        np.testing.assert_allclose(line.get_ydata(), [weight[mask & (part == at)].mean() for at in (3, 4, 5)])
    equal = plots.Weights(np.zeros(8), np.zeros(8), np.ones(8), np.arange(8), np.zeros(8, bool))
    assert "100%, 0.0% clipped" in plots.weights_figure(equal, 20.0, "cloning").get_suptitle()


@needs("vectors")
def test_the_weights_are_of_every_step_also_where_an_observation_is_several_integers() -> None:
    spec = spec_of(MultiDiscrete([4, 2, 3]), Discrete(4), *LISTED)
    window, none = window_of(spec, 2, LENGTH), torch.zeros(2, LENGTH, dtype=torch.long)
    others = (window.obs, window.timestep, none, none, none, torch.ones(2, LENGTH), window.reward)
    batch = Batch(window.obs, window.action, window.reward, *others)
    config = critics.config_of(model={"obs_encoding": "coordinates"})
    objective = AdvantageWeightedRegression(config.awr, critics.fresh_critic(config, spec).target)
    weights = plots.weights_of(objective, [batch, batch])
    assert weights.part.tolist() == [step * plots.NUM_PARTS // LENGTH for step in range(LENGTH)] * 4
    assert all(column.shape == (4 * LENGTH,) for column in weights)
    np.testing.assert_array_equal(weights.optimal, (window.action == 0).flatten().tile(2))


@pytest.mark.parametrize(("terminating", "shared"), [(True, True), (False, False)])
def test_comparison(tmp_path: Path, monkeypatch, terminating: bool, shared: bool) -> None:
    """References that differ between the evaluations are not drawn."""
    figures = []
    monkeypatch.setattr(style, "save_figure", lambda _, figure: figures.append(figure))
    folders = {"one": tmp_path / "1", "two": tmp_path / "2"}
    shifts = {"success": 0.0, "returns": 1.0, "steps_to_goal": 2.0}
    for folder, height, searcher in zip(folders.values(), (0.3, 0.5), (0.9, 0.9 if shared else 0.8), strict=True):
        policies = {"model, held-out tasks": height, "model, training tasks": 0.7, "a2c, training tasks, start": 0.4}
        policies |= {"random": 0.1, "one agent for all tasks": 0.2, "searcher": searcher}
        curve = lambda value: dict.fromkeys(("mean", "low", "high"), [value] * 3)  # noqa: E731
        curves = {name: {one: curve(value + up) for one, up in shifts.items()} for name, value in policies.items()}
        results.write_results(folder, curves=curves)
    config = compose_config(OfflineConfig, ["experiment=tiny", f"env.terminate_on_goal={terminating}"])
    plots.write_comparison(config, folders, tmp_path / "both.png")
    ((left, right),) = [figure.axes for figure in figures]
    assert (left.get_ylabel(), right.get_ylabel()) == ("success", "steps to goal" if terminating else "return")
    lines = {"one": 0.3, "two": 0.5, "random": 0.1, "one agent for all tasks": 0.2}
    lines |= {"searcher": 0.9} if shared else {}
    for axes, up in ((left, 0.0), (right, 1.0 + terminating)):
        np.testing.assert_allclose([line.get_ydata() for line in axes.lines], [[v + up] * 3 for v in lines.values()])
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == [*lines]


# ---- curves of the training of a critic

STEPS = np.arange(4.0)


def logged(**values: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"train/{name}": (STEPS, value + STEPS / 10) for name, value in values.items()}


@pytest.mark.parametrize("bounded", [True, False])
def test_figure_of_a_critic_shows_the_curves_there_are(bounded: bool) -> None:
    curves = logged(td_error=1, q1=2, q=5, v=6, largest_q=7) | (logged(value=3, conservative=4) if bounded else {})
    curves["train/q_over_bound"] = (STEPS, curves["train/largest_q"][1] / 20 if bounded else 0 * STEPS)
    figure = critic_figure(curves, "run")
    bold = [[line.get_ydata() for line in axes.lines if line.get_alpha() is None] for axes in figure.axes]
    for lines, starts in zip(bold, ([1], [2, 3, 4] if bounded else [2], [5, 6]), strict=False):
        np.testing.assert_allclose(lines, [start + STEPS / 10 for start in starts])
    largest, *bound = bold[3]
    np.testing.assert_allclose(largest, 7 + STEPS / 10)
    np.testing.assert_allclose(bound, [[20, 20]] if bounded else np.empty((0,)))


def test_curves_of_values_are_refused_without_a_training_or_its_curves(tmp_path):
    config = load_config(["experiment=tiny", f"root={tmp_path}"])
    with pytest.raises(ConfigError, match="train-ilql"):
        write_value_curves(config)
    critics.save_finished(config.folder("logs") / "ilql", {})
    with pytest.raises(ConfigError, match=r"summaries\.num_summaries=0"):
        write_value_curves(config)
