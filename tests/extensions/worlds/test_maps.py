"""Maps of rooms with a key and a door."""

import pytest
import torch
from task_maps import figure_of, outlined, printed, world

from icrl import extensions
from icrl.app.compose import load_config
from icrl.envs import make_env


@pytest.mark.parametrize("show_key", [False, True])
def test_doors_show_the_mean_over_keys_and_are_outlined_if_all_are_held_out(show_key: bool) -> None:
    env = world("env=dark_key_to_door", "env.size=3", "env.random_start=false", f"env.show_key={show_key}")
    tasks = env.all_tasks()
    keyed = {tuple(task): number for number, task in enumerate(tasks.tolist())}
    train = tasks[[keyed[0, 5], keyed[1, 5], keyed[0, 7]]], [1.0, 0.0, 0.25]
    held_out = tasks[[keyed[2, 5], keyed[3, 8], keyed[4, 8]]]
    figure = figure_of(env, train, (held_out, [0.5, 0.5, 1.0]))
    assert printed(figure) == {5: "0.50", 7: "0.25", 8: "0.75"} and outlined(figure) == {8}
    assert figure.get_suptitle() == "success, mean by door"
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1.5, 1.5]]
    unknown = figure_of(env, train, (held_out, []))
    assert printed(unknown) == {5: "0.50", 7: "0.25"} and outlined(unknown) == {8}
    one_key = tasks[[keyed[0, 5], keyed[0, 7]]], [0.2, 0.6]
    assert figure_of(env, one_key).get_suptitle() == "success", "one task for each door"


@pytest.mark.skipif("offline_rl" not in extensions.NAMES, reason="the extension offline_rl is not installed")
def test_key_and_door_are_marked_and_no_start_if_starts_vary() -> None:
    env = make_env(load_config(["env=dark_key_to_door", "env.size=3"]).env)
    if "offline_rl" in extensions.NAMES:
        from icrl.extensions.offline_rl.pictures import CellValues, maps_figure  # noqa: PLC0415

        cells = CellValues(torch.arange(9.0), torch.ones(9, dtype=torch.long))
        (stars,) = maps_figure(env, torch.tensor([[2, 3]]), [[cells] * 3], "values").axes[0].lines
        assert stars.get_xydata().tolist() == [[2, 0], [0, 1]]
