"""References, tasks that are new to a model, and maps, in the worlds of this extension."""

from importlib import import_module

import numpy as np
import pytest
import torch
from installed import needs
from other_worlds import changed, holding_out, played
from task_maps import figure_of, outlined, printed, world

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import exact_references, references_of
from icrl.programs.train_agents import print_results

BANDIT, BERNOULLI = ["Thompson sampling", "UCB1"], ["Thompson sampling", "tuned UCB1", "UCB1"]


@pytest.mark.parametrize(
    ("world", "references"),
    [
        (["env=bandit", "env.num_arms=3"], BERNOULLI),
        (["env=bandit_gaussian", "env.num_arms=3"], BANDIT),
        (["env=bandit_contextual"], BERNOULLI),
        (["env=bandit_linear"], ["Thompson sampling", "LinUCB"]),
        (["env=dark_key_to_door", "env.size=3"], ["searcher"]),
        (["env=garnet"], ["PSRL"]),
        (["env=anymdp", "env.num_states=6"], ["PSRL"]),
    ],
)
def test_references_and_played_chance_that_agrees_with_the_exact_one(world: list[str], references: list[str]) -> None:
    env = make_env(load_config(world).env)
    assert list(references_of(env)) == references
    tasks, num_streams = env.all_tasks()[:4], 60
    exact = exact_references(env, tasks)
    played, _ = play_episodes(Chance(env.spec), env, tasks, num_streams, 5, seed=0)
    for measure, expected in exact["random"].items():
        values = getattr(played, measure)
        error = 5 * values.std((1, 2)) / (5 * num_streams) ** 0.5 + 1e-9
        assert (abs(values.mean((1, 2)) - np.array(expected)) < error).all()
    assert (np.array(exact["optimum"]["returns"]) > exact["random"]["returns"]).all()


# ---- tasks of the worlds of this extension: which are new to a trained model, and which were solved


@needs("other_worlds")
def test_tasks_are_compared_by_what_they_mean() -> None:
    """Key and door are one task; a bandit is its arms."""
    config = load_config(["env=dark_key_to_door", "env.size=2", "env.max_episode_steps=9", "tasks.num_held_out=0"])
    found = played(changed(config, random_start=True), config, [0, 4])  # (0, 1) and (1, 2)
    assert len(found) == 10 and [0, 1] not in found and [1, 2] not in found and [1, 0] in found and [2, 1] in found
    for name in ("bandit", "bandit_gaussian"):
        config = holding_out(load_config([f"env={name}", "env.num_tasks=24", "env.num_arms=4"]), 0)
        arms = {task for (task,) in played(changed(config, num_tasks=30), config, [3, 7])}
        assert arms == set(range(30)) - {3, 7}


def test_a_bandit_is_solved_by_who_found_its_best_arm(capsys) -> None:
    print_results(load_config(["env=bandit"]), {"num_tasks": 20, "unsolved": [{"task": "task_3", "success": [0.5]}]})
    told = capsys.readouterr().out
    assert told.startswith("19 of 20 training tasks whose best arm was found by all their agents\n")


# ---- maps of rooms with a key and a door


@needs("maps")
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


@needs("offline_rl")
def test_key_and_door_are_marked_and_no_start_if_starts_vary() -> None:
    env = make_env(load_config(["env=dark_key_to_door", "env.size=3"]).env)
    pictures = import_module("icrl.extensions.offline_rl.pictures")
    cells = pictures.CellValues(torch.arange(9.0), torch.ones(9, dtype=torch.long))
    (stars,) = pictures.maps_figure(env, torch.tensor([[2, 3]]), [[cells] * 3], "values").axes[0].lines
    assert stars.get_xydata().tolist() == [[2, 0], [0, 1]]
