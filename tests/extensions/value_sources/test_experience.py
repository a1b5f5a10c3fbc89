"""Samples of updates: mini-batches of an unroll, replay and recorded histories in the loop."""

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import CPU, changed
from small_histories import MARK, write_histories
from stage_one import joined, live, root_with_others
from toy import assert_same

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, Rollout, Sample, UpdateResult
from icrl.envs import make_env
from icrl.extensions.value_sources.memory import OfflineWindows
from icrl.sources.collect import make_experience, mini_batches
from icrl.sources.options import batches_of_a_sweep, num_iterations

SIZES = ("env=dark_room", "env.size=4", "env.max_episode_steps=6", "source.num_learners=2", "source.num_envs=2")
TABULAR: Any = load_config(["source=q_learning", *SIZES])
ENV = make_env(TABULAR.env)
TASKS = ENV.all_tasks()[[3, 8]]
REPLAY = {"clear_replay_buffer": False, "replay_buffer_length": 9, "unroll_length": 1.5}
REPLAY |= {"mini_batch_length": 2, "mini_batch_size": 3, "num_updates_per_train_iter": 2}
DRAWN = REPLAY | {"whole_replay_buffer_training": False}
OFFLINE = {"offline_buffer_dir": ["others"], "rl_train_after_update_steps": 4}
MODES: dict[str, dict[str, Any]] = {
    "sweep": REPLAY,
    "uniform": DRAWN,
    "prioritised": DRAWN | {"priority_replay": True},
    "offline": DRAWN | {"priority_replay": True} | OFFLINE,
    "on from the replay": DRAWN | {"priority_replay": True, "num_env_steps": 20},  # the env steps end after iteration 7
    "unroll and offline": {"mini_batch_length": 1, "mini_batch_size": 2, "unroll_length": 1} | OFFLINE,
}


def config_of(root: Path | None = None, **changes: Any) -> Any:
    source = changed(TABULAR.source, **{"num_env_steps": 0, "num_iterations": 16} | changes)
    return changed(TABULAR, source=source, root=str(root))


@st.composite
def cuts(draw: st.DrawFn) -> Any:
    """Windows that divide the unroll, batches that divide the windows."""
    num_envs, num_windows, length = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 3))
    windows = num_envs * (num_windows if length else 1)
    size = draw(st.sampled_from([0, *(size for size in range(1, windows + 1) if windows % size == 0)]))
    changes = {"num_envs": num_envs, "unroll_length": num_windows * (length or 2), "mini_batch_length": length}
    return config_of(**changes, mini_batch_size=size, num_updates_per_train_iter=draw(st.integers(1, 3))).source


def numbered(num_steps: int, num_streams: int) -> Rollout:
    """Transitions whose every column but the ends tells step and stream."""
    number = torch.arange(num_steps)[:, None] * 100 + torch.arange(num_streams)
    return Rollout(number, number, number.float(), number, number, number % 3 == 0, number % 5 == 0, number)


@settings(max_examples=30)
@given(cuts(), st.integers(1, 3), st.integers(1, 50))
def test_a_sweep_uses_every_transition_once(source: Any, num_learners: int, key: int) -> None:
    """In windows of steps that follow each other in one stream, each at the place of its learner and with its targets,
    in batches of the size that is asked for."""
    num_envs, num_steps, sweeps = source.num_envs, int(source.unroll_length), source.num_updates_per_train_iter
    unroll = numbered(num_steps, num_learners * num_envs)
    samples = list(mini_batches(source, unroll, {"target": unroll.obs + 1}, num_learners, torch.tensor(key)))
    parts = [sample.rollout for sample in samples]
    length = source.mini_batch_length or num_steps
    windows = num_envs * num_steps // length
    size = source.mini_batch_size or windows
    assert [part.obs.shape for part in parts] == [(length, num_learners * size)] * (sweeps * (windows // size))
    for part, sample in zip(parts, samples, strict=True):
        steps, streams = part.obs // 100, part.obs % 100
        assert (steps == steps[0] + torch.arange(length)[:, None]).all() and (steps[0] % length == 0).all()
        assert (streams == streams[0]).all()
        assert (streams[0] // num_envs).tolist() == torch.arange(num_learners).repeat_interleave(size).tolist()
        assert all(torch.equal(column, part.obs) for column in (*part[:5], part.optimal_action))
        assert torch.equal(part.terminated, part.obs % 3 == 0) and torch.equal(part.truncated, part.obs % 5 == 0)
        assert list(sample.targets) == ["target"] and torch.equal(sample.targets["target"], part.obs + 1)
        assert sample.weight.tolist() == [1.0] * num_learners * size
    for sweep in range(sweeps):
        used = parts[sweep * windows // size :][: windows // size]
        assert sorted(joined(used).obs.flatten().tolist()) == unroll.obs.flatten().tolist()


def test_sweeps_iterations_and_seeds_are_in_different_orders() -> None:
    changes = {"num_updates_per_train_iter": 2, "mini_batch_length": 1, "mini_batch_size": 6, "unroll_length": 5}
    sweeps = [numbered(5, 6).obs.flatten().tolist()]
    for iteration, seed in ((1, 0), (2, 0), (1, 1)):
        config = changed(config_of(num_envs=6, **changes), seed=seed)
        samples = make_experience(config, ENV.spec, TASKS[:1], CPU).samples(iteration, numbered(5, 12), lambda _: {})
        order = torch.cat([sample.rollout.obs[0, :6] for _, sample in samples]).tolist()
        sweeps += [order[:30], order[30:]]
    assert len({tuple(sweep) for sweep in sweeps}) == 7


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with histories of the tasks here and one more."""
    return root_with_others(tmp_path_factory.mktemp("others"), TABULAR, [8, 1, 3], 2)


class Watched:
    """Learners whose samples and results are kept."""

    def __init__(self, learner: Any) -> None:
        self._learner, self.samples, self.told = learner, list[Sample](), list[UpdateResult]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def update(self, sample: Sample) -> UpdateResult:
        self.samples.append(sample)
        self.told.append(self._learner.update(sample))
        return self.told[-1]


def watch(config: Any, tasks: Any, stop: int, saved: Any = None) -> tuple[Watched, list[Rollout], dict[str, Any]]:
    learner, played, state = live(config, ENV, tasks, stop, saved, wrap=Watched)
    return learner, [transitions for transitions, _, _ in played], state


@pytest.mark.parametrize("mode", MODES)
def test_a_run_equals_itself_interrupted_and_among_others(others: Path, mode: str) -> None:
    """The learners of the first of two tasks alone learn the same, to the last of their Q values."""
    config = config_of(others, **MODES[mode])
    total = num_iterations(config.source)
    whole, unrolls, end = watch(config, TASKS, total)
    assert len(whole.samples) >= 12 and whole.samples[-1].rollout.obs.shape[0] == config.source.mini_batch_length
    for stop in range(1, total, 7):
        early, first_part, saved = watch(config, TASKS, stop)
        late, second_part, again = watch(config, TASKS, total, saved)
        assert_same(first_part + second_part, unrolls)
        assert_same(early.samples + late.samples, whole.samples)
        assert_same(again, end)
    alone, _, _ = watch(config, TASKS[:1], total)
    for ours, theirs in zip(alone.samples, whole.samples, strict=True):
        half = ours.weight.numel()
        assert_same(list(ours.rollout), [column[:, :half] for column in theirs.rollout])
        assert_same(ours.weight, theirs.weight[:half])
    (_, table), (_, among) = next(alone.parameters()), next(whole.parameters())
    assert torch.equal(table, among[:2]) and (table != 1).any()


@pytest.mark.parametrize(("mode", "stop"), [(REPLAY, 16), (DRAWN, 16), (DRAWN | OFFLINE, 4)])
def test_each_sweep_and_draw_of_an_iteration_has_windows_of_its_own(others: Path, mode: Any, stop: int) -> None:
    """From the replay, and from histories, before the first env step."""
    config = config_of(others, **mode)
    watched, each = watch(config, TASKS, stop)[0], batches_of_a_sweep(config.source, stop)
    assert not all(map(torch.equal, watched.samples[-1].rollout, watched.samples[-1 - each].rollout))


def test_the_td_error_of_own_windows_becomes_their_priority(others: Path) -> None:
    """With alpha 1 the table holds it as it is, and not that of the other windows. Then weights of samples differ."""
    options = MODES["offline"] | {"priority_replay_alpha": 1.0, "mini_batch_size": 2}
    config = config_of(others, **options | {"num_updates_per_train_iter": 1})
    watched, _, state = watch(config, TASKS, 16)
    columns, priorities = (state["experience"]["replay"][name] for name in ("columns", "priorities"))
    rollout, td_error = watched.samples[-1].rollout, watched.told[-1].td_error
    assert td_error is not None and priorities.shape == (4, 2 * 9)
    assert any((one.weight.unflatten(0, (4, -1))[:, :2].diff() != 0).any() for one in watched.samples)
    own, first = td_error.unflatten(0, (4, 4)).double(), rollout.obs[0].unflatten(0, (4, 4))
    obs = columns["obs"].long().unflatten(1, (4, 2)).permute(1, 2, 0).flatten(1)  # [L, N * C]
    for learner, window in itertools.product(range(4), range(2)):
        told = (priorities[learner] - 1e-6 - own[learner, window]).abs() < 1e-7
        assert (told & (obs[learner] == first[learner, window])).any()


def test_learners_of_other_tasks_learn_without_histories() -> None:
    """At once, and from all that they play."""
    source = config_of(**OFFLINE | {"num_updates_per_train_iter": 3}).source
    assert replace(source, **source.alone()) == config_of(num_updates_per_train_iter=3).source
    assert load_config().source.alone() == {}


# ---- windows of recorded histories


def open_windows(root: Path, tasks: list[int], length: int, **changes: Any) -> OfflineWindows:
    config = config_of(root, **{"offline_buffer_dir": ["others"]} | changes)
    return OfflineWindows(config, config.source, ENV.spec, ENV.all_tasks()[tasks], length, CPU)


@settings(max_examples=12)
@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_every_window_of_a_task_is_drawn_once_in_as_many_draws(data, length, per_task) -> None:
    """For each learner of the task, from its rows alone, whatever the order of tasks."""
    num_steps, tasks, train = 20, [9, 7], [7, 2, 9]
    ends = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=60 * per_task, max_size=60 * per_task)))
    ends = (ends == 0).view(num_steps, 3 * per_task)
    rows = [[[*range(start, start + length)] for start in range(num_steps - length + 1)] for _ in ends.T]
    expected = {
        task: sorted((row, *steps) for row in range(k * per_task, (k + 1) * per_task) for steps in rows[row])
        for k, task in enumerate(train)
    }
    with tempfile.TemporaryDirectory() as root:
        write_histories(Path(root), "others", TABULAR, train, per_task, ends)
        with pytest.raises(ConfigError, match=r"source.mini_batch_length=.*source.offline_buffer_dir=others"):
            open_windows(Path(root), tasks, num_steps + 1)
        windows = open_windows(Path(root), tasks, length)
    for learner, task in enumerate((9, 9, 7, 7)):
        drawn = windows.draw(len(expected[task]), torch.tensor(5))
        mine = [column.unflatten(1, (4, -1))[:, learner] for column in drawn]
        steps, row = mine[0], mine[3]
        assert (row == row[0]).all() and (mine[4] == MARK).all()
        assert sorted((r, *s) for r, s in zip(row[0].tolist(), steps.T.tolist(), strict=True)) == expected[task]
        assert torch.equal(mine[5] | mine[6], ends[steps, row]) and mine[5].dtype == mine[6].dtype == torch.bool
        assert torch.equal(mine[2], steps % 2) and torch.equal(mine[1], row % 5) and torch.equal(mine[7], steps % 5)


def test_windows_of_several_histories_are_those_of_each(tmp_path: Path) -> None:
    """All of a task equally often, from histories with other orders of tasks and numbers of rows."""
    ends = torch.zeros(20, 6).bool()
    write_histories(tmp_path, "others", TABULAR, [7, 2, 9], 2, ends)
    write_histories(tmp_path, "more", TABULAR, [9, 7], 1, ends[:12, :2])
    rows = {7: [(0, 20), (1, 20), (1, 12)], 9: [(4, 20), (5, 20), (0, 12)]}  # of a task: its number, its steps
    windows = open_windows(tmp_path, [9, 7], 3, offline_buffer_dir=["others", "more"])
    alone = open_windows(tmp_path, [9, 7], 3)
    for learner, task in enumerate((9, 9, 7, 7)):
        expected = sorted((row, start) for row, steps in rows[task] for start in range(steps - 2))
        drawn = windows.draw(len(expected), torch.tensor(5))
        obs, row = (column.unflatten(1, (4, -1))[:, learner] for column in (drawn.obs, drawn.next_obs))
        assert sorted(zip(row[0].tolist(), obs[0].tolist(), strict=True)) == expected
        assert (obs[1:] == obs[:-1] + 1).all()
        assert alone.draw(36, torch.tensor(5)).obs.shape == (3, 4 * 36)


def test_what_others_recorded_is_an_input_of_the_run(tmp_path: Path) -> None:
    """So a run does not go on from other histories under the same name."""
    config, found = config_of(tmp_path, offline_buffer_dir=["others"]), list[dict[str, str]]()
    for num_steps in (20, 21):
        folder = write_histories(tmp_path, "others", TABULAR, [1], 1, torch.zeros(num_steps, 1).bool())
        found.append(config.source.inputs(config))
        shutil.rmtree(folder)
    assert found[0].keys() == {"source.offline_buffer_dir"} and found[0] != found[1]
    assert TABULAR.source.inputs(TABULAR) == {}


@pytest.mark.parametrize(
    ("tasks", "changes", "there", "message"),
    [
        ([1, 4], {}, {}, "others: .* has no histories of 1 of the 2 training tasks"),
        ([1], {"offline_buffer_dir": ["nobody"]}, {}, "no histories in .*nobody"),
        ([1], {}, {"env": changed(TABULAR.env, max_episode_steps=7)}, r"others: .*env\.max_episode_steps=7"),
        ([1], {}, {"source": changed(TABULAR.source, task_change=0.5)}, r"others: .* source\.task_change=0"),
    ],
)
def test_refused_histories(tmp_path: Path, tasks: list[int], changes: Any, there: Any, message: str) -> None:
    """Rewards of streams that changed their task are of other tasks than their rows are named by."""
    recorded = changed(TABULAR, **there)
    write_histories(tmp_path, "others", recorded, [1, 2], 1, torch.zeros(30, 2).bool())
    with pytest.raises(ConfigError, match=message):
        open_windows(tmp_path, tasks, 1, **changes)
