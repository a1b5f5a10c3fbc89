"""Tasks of the worlds of this extension: which are new to a trained model, and which were solved."""

from other_worlds import changed, holding_out, played

from icrl.app.compose import load_config
from icrl.programs.train_agents import announce


def test_tasks_are_compared_by_what_they_mean() -> None:
    """Key and door are one task; a bandit is its arms."""
    config = load_config(["env=dark_key_to_door", "env.size=2", "env.max_episode_steps=9", "tasks.num_held_out=0"])
    found = played(changed(config, random_start=True, show_key=False), config, [0, 4])  # (0, 1) and (1, 2)
    assert len(found) == 10 and [0, 1] not in found and [1, 2] not in found and [1, 0] in found and [2, 1] in found
    for world in ("bandit", "bandit_gaussian"):
        config = holding_out(load_config([f"env={world}", "env.num_tasks=24", "env.num_arms=4"]), 0)
        for options, known in (({"num_tasks": 30}, {3, 7}), ({"deviation": 2.0}, {3, 7}), ({"tasks_seed": 1}, set())):
            arms = {task for (task,) in played(changed(config, **options), config, [3, 7])}
            assert arms == set(range(options.get("num_tasks", 24))) - known


def test_a_bandit_is_solved_by_who_found_its_best_arm(capsys) -> None:
    announce(load_config(["env=bandit"]), {"num_tasks": 20, "unsolved": [{"task": "task_3", "success": [0.5]}]})
    told = capsys.readouterr().out
    assert told.startswith("19 of 20 training tasks whose best arm was found by all their agents\n")
