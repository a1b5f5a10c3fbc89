"""An expert that sees the task, in a world of vectors: one learner for all tasks, the labels and the references."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import SMALL, STAGES, done, kill_late, refusal
from installed import needs

from icrl.app.compose import load_config
from icrl.contracts import Step
from icrl.data.history_store import open_histories
from icrl.envs import make_env
from icrl.extensions.experts.teachers import agents_of_teacher
from icrl.runs.checkpoint import load_newest, saved_step, sidecars
from icrl.runs.files import read_json

pytestmark = needs("vectors")
CPU = torch.device("cpu")
LEARNER = ("source=expert", "source.num_env_steps=128", "source.history_steps=128", "source.hidden_size=8")
ALONE = (
    *SMALL,
    *("env=pendulum", "env.max_episode_steps=16", "env.num_tasks=9", "tasks.num_train=6", "source.videos_per_task=0"),
    *("source.num_envs=1", "checkpoints.num_checkpoints=4", "summaries.num_summaries=0", "data.min_final_success=0"),
    *("model.num_bins=8", "trainer.evaluate=false", "evaluation.num_episodes=2"),
    *("evaluation.ablations=false", "evaluation.temperatures=[]", "evaluation.videos=false"),
)
TAUGHT = (
    *("experiment=expert", *ALONE, "name=taught", "source.num_env_steps=320", "source.history_steps=320"),
    f"source.expert=[{','.join(repr(one) for one in LEARNER)}]",
)
LONG = ("source.num_env_steps=640", "source.history_steps=640")
WRONG = "source.wrong_task={kind: linear, progress: percent, points: [[0, 1.0], [0.8, 0.0]]}"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of the runs of all three stages, after that of a policy without memory; only to be read."""
    root = tmp_path_factory.mktemp("taught")
    for stage in STAGES:
        done(stage, root, *LEARNER, "name=blind", "source.num_learners=1", preset=ALONE)
        done(stage, root, WRONG, preset=TAUGHT)
    return root


@pytest.mark.parametrize("histories", ["first", "[first]", "[first,second]"])
def test_the_teacher_of_a_list_of_histories_is_that_of_the_first(histories: str) -> None:
    assert load_config([*TAUGHT, f"histories={histories}"]).source.teacher == "first-expert"


def seen(env: Any, obs: torch.Tensor, timestep: torch.Tensor | None = None) -> Step:
    """A step that shows these observations, at the start of an episode if no `timestep` is given."""
    zero = torch.zeros(len(obs))
    timestep = zero.long() if timestep is None else timestep
    return Step(obs, zero, zero > 0, zero > 0, obs, timestep, env.spec.unknown_action(obs))


def columns_of(root: Path) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    """Columns of the histories `taught` and the number of each row's task."""
    store = open_histories(root / "histories/taught")
    return {name: torch.tensor(np.array(column)) for name, column in store.columns.items()}, store.row_tasks


def recorded_twice(root: Path, options: tuple[str, ...]) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    """Columns and tasks of a run, which are the same after it was killed at its first checkpoint."""
    found, logs = list[tuple[dict[str, torch.Tensor], np.ndarray]](), root / "logs/taught/source"
    for _ in range(2):
        done("train_agents", root, preset=options)
        found.append(columns_of(root))
        kill_late(logs, min(saved_step(path) for path in sidecars(logs, "last")))
    assert all(column.equal(found[1][0][name]) for name, column in found[0][0].items())
    return found[0]


def test_one_learner_learns_from_all_tasks_and_resumes(taught: Path, tmp_path: Path) -> None:
    """Its network has one learner; there is a row for each task and environment. Killed, it ends with the same bits."""
    store = open_histories(taught / "histories/taught-expert")
    assert store.manifest["rows"] == {"num_learners": 1, "num_envs": 2} and len(store.columns["obs"]) == 12
    saved = load_newest(taught / "logs/taught-expert/source", "last", CPU)
    assert saved
    network = saved[0]["learner"]["network"]
    assert {len(value) for name, value in network.items() if "count" not in name} == {1}
    root = Path(shutil.copytree(taught, tmp_path / "root"))
    logs = root / "logs/taught-expert/source"
    kill_late(logs, min(saved_step(path) for path in sidecars(logs, "last")))
    done("train_agents", root, WRONG, preset=TAUGHT)
    again = load_newest(logs, "last", CPU)
    assert again
    for name, value in network.items():
        assert value.equal(again[0]["learner"]["network"][name]), name


def test_labels_are_the_actions_of_an_expert_that_sees_the_task(taught: Path) -> None:
    """Row by row: the most probable action on the observation with the task's numbers, whatever was played."""
    config = load_config([*TAUGHT, f"root={taught}"])
    env, (columns, row_tasks) = make_env(config.env), columns_of(taught)
    tasks = env.all_tasks()[row_tasks]  # a row for each
    assert len(tasks) == 12
    expert: Any = agents_of_teacher(config, "taught-expert", tasks)
    num_steps = columns["obs"].shape[1]
    for time in (0, 7, num_steps - 1):
        obs, zero = columns["obs"][:, time], torch.zeros(len(tasks))
        step = seen(env, obs)
        best = expert.act_in_evaluation(expert.remember((), step)[0], zero, 0.0)
        torch.testing.assert_close(columns["optimal_action"][:, time], best)
        blind = expert._agents.act_in_evaluation(step._replace(obs=torch.cat([obs, tasks.roll(1, 0)], 1)), zero, 0.0)
        assert not torch.allclose(blind, best)
    torch.testing.assert_close(columns["action"][:, -1], columns["optimal_action"][:, -1])
    assert (columns["action"][:, 0] - columns["optimal_action"][:, 0]).abs().mean() > 0.1


@pytest.mark.long
def test_an_expert_that_is_told_a_wrong_task_still_labels_for_the_right_one(tmp_path: Path) -> None:
    """Episodes without noise are those of one task: mostly of another one at first, and of the right one in the end.
    Labels are the actions for the right one. Killed, it ends with the same bits."""
    options = (*TAUGHT, *LONG, "source.noise=0", WRONG)
    columns, row_tasks = recorded_twice(tmp_path, options)
    config = load_config([*options, f"root={tmp_path}"])
    env = make_env(config.env)
    expert: Any = agents_of_teacher(config, "taught-expert", env.all_tasks()[row_tasks])
    own, length, zero = expert.own_tasks(12), 16, torch.zeros(12)
    fits = torch.zeros(6, 12, columns["obs"].shape[1], dtype=torch.bool)  # the expert of this task would act so
    for time in range(fits.shape[-1]):
        step = seen(env, columns["obs"][:, time])
        by_task = [expert.act_in_evaluation(expert.told(step, own.roll(2 * k)), zero, 0.0) for k in range(6)]
        torch.testing.assert_close(columns["optimal_action"][:, time], by_task[0])
        fits[..., time] = torch.stack([(columns["action"][:, time] - one).abs().sum(-1) < 1e-5 for one in by_task])
    of_one = fits.unflatten(2, (-1, length)).all(-1)  # [tasks, rows, episodes], in all steps of the episode
    assert of_one.any(0).all()
    wrong = (~of_one[0]).float()
    assert wrong[:, :8].mean() > 0.6 and wrong[:, -6:].sum() == 0


@pytest.mark.long
@needs("memory")
def test_an_expert_with_a_memory_teaches_where_a_step_does_not_show_the_state(tmp_path: Path) -> None:
    """Labels are those of its memory of the episode, over the ends of unrolls and after a kill, and not of one step."""
    learner = (*LEARNER, "source.body=gru", "source.mini_batch_length=4")
    options = (*TAUGHT, *LONG, "env.hide_velocity=true", f"source.expert=[{','.join(repr(one) for one in learner)}]")
    config = load_config([*options, f"root={tmp_path}"])
    env, (columns, row_tasks) = make_env(config.env), recorded_twice(tmp_path, options)
    expert: Any = agents_of_teacher(config, "taught-expert", env.all_tasks()[row_tasks])
    carry, zero, forgotten = expert.initial_carry(12), torch.zeros(12), list[float]()
    for time in range(columns["obs"].shape[1]):
        step = seen(env, columns["obs"][:, time], columns["timestep"][:, time].long())
        (remembered, carry), (alone, _) = expert.remember(carry, step), expert.remember(expert.initial_carry(12), step)
        label = columns["optimal_action"][:, time]
        torch.testing.assert_close(label, expert.act_in_evaluation(remembered, zero, 0.0), rtol=0, atol=1e-5)
        forgotten.append(float((label - expert.act_in_evaluation(alone, zero, 0.0)).abs().max()))
    assert max(forgotten) > 0.01


def test_experts_and_agents_of_all_tasks_are_references(taught: Path) -> None:
    """On tasks that they were not trained on, each with its own returns."""
    every = [read_json(taught / f"logs/{name}/evaluation/results.json")["curves"] for name in ("taught", "blind")]
    names = "expert, sees the task", "one agent for all tasks"
    assert [[name in curves for name in names] for curves in every] == [[True, False], [False, True]]
    returns = [every[0][names[0]], every[1][names[1]], every[0]["random"]]
    assert len({tuple(curve["returns"]["mean"]) for curve in returns}) == 3


def test_a_stream_that_changes_its_task_has_no_such_expert(taught: Path) -> None:
    options = ("source.teacher=taught-expert", "source.task_change=0.5", "name=moved")
    assert "give source.task_change=0" in refusal("train_agents", taught, *options, preset=TAUGHT)


def test_in_another_world_there_is_no_expert(taught: Path) -> None:
    done("evaluate", taught, WRONG, "env.spread=2.0", preset=TAUGHT)
    (found,) = (taught / "logs/taught").glob("evaluation-*/results.json")
    assert "expert, sees the task" not in read_json(found)["curves"]
