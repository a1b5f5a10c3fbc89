"""Values on a map are what the critic says of a window that ends there; arrows and marks are where they belong."""

from pathlib import Path

import critics
import numpy as np
import pytest
import torch
from critics import LENGTH, SPEC, batch_of, critic_of
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.quiver import Quiver
from PIL import Image

from icrl.config.compose import load_config
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.rooms import next_cells
from icrl.evaluation.in_context import Adaptation
from icrl.nn.critic import ValueNetwork
from icrl.nn.gpt import REWARD, context_of, windows_of
from icrl.plots import value_maps
from icrl.plots.value_maps import CellValues, ages_at, cell_values, maps_figure, write_value_maps
from icrl.runs import checkpoint
from icrl.training.critics import make_critic

CRITIC = critic_of().target


@settings(deadline=None, max_examples=25)
@given(lived_len=st.integers(0, 2 * LENGTH), seed=st.integers(0, 99))
def test_values_are_those_of_a_window_that_ends_on_the_cell(lived_len: int, seed: int) -> None:
    batch = batch_of(1, lived_len + 1, seed)
    columns = (batch.obs, batch.action, batch.reward, batch.timestep)
    lived = windows_of(*(column[:1, :lived_len] for column in columns))[:, 0]
    found = cell_values(CRITIC, lived, torch.arange(SPEC.num_obs))
    newest = range(max(0, lived_len - (LENGTH - 1)), lived_len)
    for cell in range(SPEC.num_obs):
        obs, action, reward, timestep = (
            torch.tensor([[*(int(column[0, step]) for step in newest), last]])
            for column, last in zip(columns, (cell, 1, 1, 0), strict=True)  # the last action and reward are not read
        )
        with torch.no_grad():
            values = CRITIC(context_of(SPEC, obs, action, reward, timestep))
        torch.testing.assert_close(found.value[cell], values.value[0, -1])
        assert int(found.best[cell]) == int(torch.minimum(*values.q[:, 0, -1]).argmax())


def test_ages() -> None:
    success = np.array([[0, 0, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0, 0], [0] * 8])
    lengths = np.array([[5, 5, 3, 5, 3, 2, 1, 5], [1, 2, 3, 4, 5, 5, 5, 5], [5, 4, 3, 2, 5, 5, 5, 5], [5] * 8])
    played = Adaptation(*(np.stack([one, one * 0], axis=1) for one in (success, success, lengths, lengths)))
    np.testing.assert_array_equal(ages_at(played), [[10, 13, 24], [0, 1, 10], [5, 9, -1], [-1, -1, -1]])


def test_the_figure_shows_values_and_moves() -> None:
    env = make_env(load_config(["env=dark_room_permuted", "env.size=3", "env.random_start=false"]).env)
    tasks = env.all_tasks()[[0, 7 * 120 + 3]]  # goals 0 and 8
    assert tasks[:, 0].tolist() == [0, 8]
    generator = torch.Generator().manual_seed(0)
    maps = [
        [CellValues(torch.rand(9, generator=generator), torch.randint(5, (9,), generator=generator)) for _ in range(3)]
        for _ in tasks
    ]
    figure = maps_figure(env, tasks, maps, "values")
    every = torch.stack([one.value for row in maps for one in row])
    for number, cells in enumerate([*maps[0], *maps[1]]):
        axes, goal = figure.axes[number], (0, 8)[number // 3]
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), cells.value.reshape(3, 3))
        assert (image.norm.vmin, image.norm.vmax) == (float(every.min()), float(every.max()))
        (arrows,) = [one for one in axes.collections if isinstance(one, Quiver)]
        for cell, action in enumerate(cells.best.tolist()):
            state, _ = env.reset(tasks[number // 3, None], torch.zeros(1, dtype=torch.long))
            moved, _ = env.move(state._replace(state_index=torch.tensor([cell])), torch.tensor([action]))[:2]
            assert (arrows.X[cell], arrows.Y[cell]) == (cell % 3, cell // 3)
            assert (cell % 3 + arrows.U[cell], cell // 3 + arrows.V[cell]) == (int(moved) % 3, int(moved) // 3)
        star, ring = axes.lines
        assert star.get_xydata().tolist() == [[goal % 3, goal // 3]]
        assert ring.get_xydata().tolist() == [[1, 1]]
    assert figure.axes[1].get_title().endswith("reached once")


def test_key_and_door_are_marked_and_no_start_where_starts_vary() -> None:
    env = make_env(load_config(["env=dark_key_to_door", "env.size=3"]).env)
    task = torch.tensor([[2, 3]])
    cells = CellValues(torch.arange(9.0), torch.ones(9, dtype=torch.long))
    (stars,) = maps_figure(env, task, [[cells] * 3], "values").axes[0].lines
    assert stars.get_xydata().tolist() == [[2, 0], [0, 1]]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """That of a critic that is finished, as it was at its start."""
    config = load_config(["experiment=tiny", "device=cpu", f"root={tmp_path}"])
    env = make_env(config.env)
    about = critics.described(config) | {"env": env.spec._asdict()}
    tasks = {"all": [], "train": list(range(20)), "held_out": [20, 21, 23], "development": []}
    folder, state = tmp_path / "logs" / "tiny" / "ilql", {"model": make_critic(config, env.spec).state_dict()}
    checkpoint.save(folder, "last", 1, state, about | {"tasks": tasks}, keep=1)
    critics.finish(folder, 1)
    return config


def test_file(config: Config, tmp_path: Path) -> None:
    path = write_value_maps(config)
    assert path == tmp_path / "logs" / "tiny" / "ilql" / "values.png"
    with Image.open(path) as image:
        image.load()
        assert image.size == (1200, 800)


def test_the_picture_is_beside_the_critic_of_another_run(config: Config, tmp_path: Path) -> None:
    config.name = "other"
    assert write_value_maps(config) == tmp_path / "logs" / "tiny" / "ilql" / "values.png"
    assert not (tmp_path / "logs" / "other").exists()


def test_the_critic_watches_a_searcher_find_goals(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def spy(critic: ValueNetwork, lived: torch.Tensor, obs: torch.Tensor) -> CellValues:
        seen.append(lived)
        return cell_values(critic, lived, obs)

    monkeypatch.setattr(value_maps, "cell_values", spy)
    write_value_maps(config)
    assert [int(lived[REWARD].sum()) for lived in seen] == [0, 1, 4] * 2  # how often it was rewarded
    # The last goal takes the searcher 40 steps: with a step on the map itself they do not fit into a context of 40.
    assert [lived.shape[1] for lived in seen[2::3]] == [12, 8]
    for lived in (seen[2], seen[5]):
        action, reward, timestep, obs_seen = lived
        assert reward[-1] == 1
        expected = [0]
        for rewarded in reward[:-1]:
            expected.append(0 if rewarded or expected[-1] == 9 else expected[-1] + 1)
        assert timestep.tolist() == expected
        cell = 12
        for at, obs, move in zip(expected, obs_seen, action, strict=True):
            cell = cell if at else 12
            assert obs == cell
            cell = int(next_cells(5)[cell * 5 + move])


def test_the_searcher_must_have_time_enough(config: Config) -> None:
    config.evaluation.num_episodes = 3
    with pytest.raises(ConfigError, match="evaluation.num_episodes=3: must be enough"):
        write_value_maps(config)


def test_critics_of_other_worlds_are_refused(config: Config) -> None:
    config.env.max_episode_steps = 11
    with pytest.raises(ConfigError, match="env.max_episode_steps"):
        write_value_maps(config)


def test_worlds_without_a_searcher_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="env.name=bandit"):
        write_value_maps(load_config(["env=bandit", f"root={tmp_path}"]))
