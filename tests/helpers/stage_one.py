"""Runs of stage one that stop and go on from a file, and histories for them to learn from."""

import io
import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from small_histories import write_histories
from toy import plain

from icrl.contracts import Rollout
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.recording.record import Position
from icrl.sources.collect import collect, make_experience, make_learners, make_unroll_worker

CPU = torch.device("cpu")


def through_file(state: Any) -> Any:
    """State as it comes from a checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def joined(unrolls: Any, dim: int = 0) -> Rollout:
    """Unrolls one after the other, or with dim=1 side by side."""
    return Rollout(*(torch.cat(column, dim) for column in zip(*unrolls, strict=True)))


def play(policy: Any, env: Any, tasks: Any, num_steps: int, seed: int = 0) -> tuple[Rollout, Any]:
    """Transitions of one stream for each task, and the streams after them."""
    streams = start_streams(policy, env, tasks, stream_seeds(seed, len(tasks)))
    return rollout(policy, env, streams, num_steps, Noise(stream_seeds(seed, len(tasks), purpose=1)))


def live(
    config: Any,
    env: Any,
    tasks: Any,
    stop: int,
    saved: Any = None,
    make_worker: Callable[..., Any] = make_unroll_worker,
    wrap: Callable[[Any], Any] = lambda learner: learner,
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Learners of `tasks`, what `collect` yields up to iteration `stop`, from a `saved` state or the start, and
    the state at the end."""
    learner, streams, noise = make_learners(config, env, tasks, CPU)
    learner, position, experience = wrap(learner), Position(streams), make_experience(config, env.spec, tasks, CPU)
    parts, first = {"learner": learner, "position": position, "experience": experience}, 0
    if saved:
        first = saved["iteration"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    with closing(make_worker(config, env, learner, position.streams, noise, first)) as worker:
        if saved:
            worker.load_state_dict(saved["worker"])
        played = list(itertools.islice(collect(learner, worker, experience, first), stop - first))
        position.streams = played[-1][2]
        state = {name: part.state_dict() for name, part in (parts | {"worker": worker}).items()}
        return learner, played, through_file(state | {"iteration": stop})


def check_goes_on(config: Any, env: Any, stop: int) -> dict[str, Any]:
    """On two tasks, a run that stopped halfway to iteration `stop` goes on from a file with the bits of one that did
    not; the state at the end."""
    tasks = env.all_tasks()[:2]
    _, whole, end = live(config, env, tasks, stop)
    _, rest, end_again = live(config, env, tasks, stop, live(config, env, tasks, stop // 2)[2])
    for (ours, *_), (theirs, *_) in zip(rest, whole[stop // 2 :], strict=True):
        assert plain(ours) == plain(theirs)
    assert plain(end) == plain(end_again)
    return end


def root_with_others(root: Path, config: Any, train: list[int], per_task: int) -> Path:
    """`root` with histories "others", `per_task` rows of 16 steps of each task, in episodes of 4."""
    ends = (torch.arange(16) % 4 == 3)[:, None].expand(-1, len(train) * per_task)
    write_histories(root, "others", config, train, per_task, ends)
    return root
