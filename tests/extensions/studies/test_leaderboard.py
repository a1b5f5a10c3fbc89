"""Leaderboard: what a row says, what is refused, and which rows are replaced."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import done, flip, refusal

from icrl.app.compose import load_config
from icrl.extensions.studies.leaderboard import TABLE, world_of
from icrl.runs.files import read_json, write_json

EVALUATION = "logs/tiny/evaluation"


def rows(root: Path) -> list[dict[str, Any]]:
    return read_json(root / "logs/leaderboard" / TABLE)["rows"]


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit results, and give them the checksum of what they are now."""
    content = read_json(path)
    change(content)
    write_json(path, content)


def test_a_row_has_the_numbers_of_the_evaluation_and_the_record_of_its_run(root) -> None:
    assert "has no results yet" in done("leaderboard", root)
    told = done("leaderboard", root, f"add={root / EVALUATION}")
    (row,), results = rows(root), read_json(root / EVALUATION / "results.json")
    curves, run = results["curves"], read_json(root / "logs/tiny/gpt/run.json")["sessions"][0]
    assert row["world"] == "dark_room, env.max_episode_steps=4, env.size=3, tasks.num_train=5"
    assert row["model"] == results["final"]["held_out"][row["measure"]] and row["measure"] == "success"
    assert (row["best"], row["reach"], row["random"]) == ("optimum", 1.0, curves["random"]["success"]["mean"][-1])
    assert (row["episodes"], row["splits"], row["seeds"]) == (3, [0], [0])
    assert row["commits"] == [run["git"]["revision"]] and row["machine"] == f"{run['host']['cores']} CPU cores"
    assert 0 < row["minutes"] < 5 and row["command"].startswith("python ")
    text = (root / "logs/leaderboard/leaderboard.md").read_text()
    shown = "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**row["model"])
    assert f"| {row['world']} | success, last quarter | {shown} | 1.000 (optimum) |" in text
    assert shown in told and shown in done("leaderboard", root)


def test_a_world_is_named_by_what_differs_from_its_preset_or_its_defaults() -> None:
    assert world_of(load_config(["env=dark_room_hard", "tasks.seed=3"])) == "dark_room_hard"
    assert world_of(load_config(["env.size=7", "tasks.split=ring"])).startswith('dark_room, env.size=7, tasks.split="r')
    mine = load_config(["env.variant=mine", "env.size=7", "tasks.num_train=20"])
    assert world_of(mine) == "dark_room, env.size=7, tasks.num_train=20"


def test_a_folder_away_from_its_run_has_a_row_without_the_record(root, tmp_path) -> None:
    away = shutil.copytree(root / EVALUATION, tmp_path / "away")
    done("leaderboard", root, f"add={away}")
    (row,) = rows(root)
    assert row["minutes"] is None and (row["commits"], row["machine"], row["command"]) == ([], "", "")


def success_of(results: dict[str, Any]) -> dict[str, Any]:
    return results["final"]["held_out"]["success"]


def curve_of(results: dict[str, Any]) -> list[float]:
    return results["curves"]["model, training tasks"]["returns"]["mean"]


REFUSED = {
    "a better end": (lambda found: success_of(found).update(mean=0.9), "mean of final, held_out, success is 0.9"),
    "a better curve": (lambda found: curve_of(found).append(1.0), "mean of curves, model, training tasks, returns"),
    "choice": (lambda found: found["development_tasks"].append(found["held_out_tasks"][1]), "are training or develop"),
    "another world": (lambda found: found.pop("train_tasks"), "names no training tasks"),
    "another program": (lambda found: found["owner"].update(program="study"), "must be results of evaluate"),
    "another run": (lambda found: found["owner"].update(run="beef"), "episodes.npz is from evaluate"),
    "development": (lambda found: found["config"]["evaluation"].update(tasks="development"), "evaluation.tasks=test"),
    "a snapshot": (lambda found: found["config"]["evaluation"].update(checkpoint=4), "unfinished training"),
    "an unknown option": (lambda found: found["config"]["env"].update(size="wide"), "env.size"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_results_that_were_edited_or_are_of_something_else_are_refused(finished, tmp_path, what) -> None:
    """Also if they have a right checksum; and nothing is written."""
    change, words = REFUSED[what]
    folder = shutil.copytree(finished / EVALUATION, tmp_path / "edited")
    changed(folder / "results.json", change)
    message = refusal("leaderboard", tmp_path, f"add={folder}")
    assert words in message and str(folder) in message
    assert not (tmp_path / "logs").exists()


def test_damaged_files_are_refused_and_the_table_stays(root, tmp_path) -> None:
    done("leaderboard", root, f"add={root / EVALUATION}")
    byte, none = (shutil.copytree(root / EVALUATION, tmp_path / name) for name in ("byte", "none"))
    flip(byte / "episodes.npz", 200)
    (none / "results.json").unlink()
    for folder, words in ((byte, "episodes.npz is missing, damaged"), (none, "no evaluation there")):
        message = refusal("leaderboard", root, f"add=[{root / EVALUATION},{folder}]")
        assert words in message and str(folder) in message


def test_a_table_of_another_version_is_refused_and_stays(root) -> None:
    done("leaderboard", root, f"add={root / EVALUATION}")
    path, (row,) = root / "logs/leaderboard" / TABLE, rows(root)
    others = [{name: row[name] for name in row if name != left_out} for left_out in row.keys() - {"seeds"}]
    for other in (*others, row | {"measure": "regret"}, row | {"model": {}}, row | {"splits": []}):
        write_json(path, {"rows": [other]})
        assert str(path) in refusal("leaderboard", root)
    assert str(path) in refusal("leaderboard", root, f"add={root / EVALUATION}")


def test_the_whole_split_of_a_model_beside_it_counts_and_so_does_its_end(root) -> None:
    """Not only training tasks that were played."""
    played = root / EVALUATION / "results.json"
    tasks = read_json(played)["train_tasks"]
    changed(played, lambda found: found.update(train_tasks=tasks[1:], held_out_tasks=tasks[:1]))
    assert "are training or development tasks" in refusal("leaderboard", root, f"add={played.parent}")
    (root / "logs/tiny/gpt/finished.json").unlink()
    assert "is not finished" in refusal("leaderboard", root, f"add={played.parent}")


def test_seeds_of_one_recipe_are_one_row_and_runs_that_are_added_again_replace_theirs(root) -> None:
    other = ("name=second", "run=second", "histories=tiny", "seed=1")
    for stage in ("train_gpt", "evaluate"):
        done(stage, root, *other)
    first, second = (root / f"logs/{name}/evaluation" for name in ("tiny", "second"))
    colder = Path(shutil.copytree(first, root / "colder"))
    changed(colder / "results.json", lambda found: found["config"]["policy"].update(temperature=0.5))
    for _ in range(2):
        done("leaderboard", root, f"add={first}")
        assert [row["seeds"] for row in rows(root)] == [[0]]
    done("leaderboard", root, f"add=[{first},{second}]")
    (row,) = rows(root)
    means = [success_of(read_json(one / "results.json"))["mean"] for one in (first, second)]
    assert row["seeds"] == [0, 1] and row["model"]["mean"] == pytest.approx(sum(means) / 2)
    assert row["model"]["low"] <= row["model"]["mean"] <= row["model"]["high"] and len(row["folders"]) == 2
    assert "| 1 x 2 |" in (root / "logs/leaderboard/leaderboard.md").read_text()
    assert "some have the same seed" in refusal("leaderboard", root, f"add=[{first},{first}]")
    done("leaderboard", root, f"add=[{first},{colder},{second}]")
    assert sorted(row["seeds"] for row in rows(root)) == [[0], [0, 1]]
    again = Path(shutil.copytree(first, root / "again"))
    changed(again / "results.json", lambda found: found["config"].update(seed=7))
    assert "some are evaluations of the same run" in refusal("leaderboard", root, f"add=[{first},{again}]")
    message, before = refusal("leaderboard", root, f"add={second}"), rows(root)
    assert "has a row of 2 runs" in message and f"add=[{first},{second},...]" in message and rows(root) == before
