"""Stage one: train source agents on every training task and record their lives as learning histories.

python -m src.train_agents [KEY=VALUE ...]      -> histories/<name>/, logs/<name>/source/, videos/<name>/source/
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from src.config import check_same
from src.contracts import ConfigError
from src.schema import Config
from src.contracts import Env, Json
from src.data.history_store import HistoryWriter, read_manifest
from src.envs import make_env
from src.envs.base import State, TensorEnv
from src.envs.process import ProcessEnv
from src.envs.rollout import Streams
from src.envs.tasks import split_tasks
from src.evaluation.source_board import SourceBoard, examine
from src.files import only_writer, read_json, write_json
from src.pace import interval_of, is_due, num_iterations, unrolled
from src.runtime import prepare, recorded, run_stage
from src.training import checkpoint
from src.training.collect import Learner, collect, make_learners
from src.training.recovery import Recovery

COMPARED = ("seed", "env", "tasks", "source")


def main(config: Config) -> Path:
    """Train and record, or continue, or say what was found; returns the folder with the histories."""
    device = prepare(config)
    histories, folder = config.folder("histories"), config.folder("logs") / "source"
    env = make_env(config.env, device)
    all_tasks = env.all_tasks()
    split = split_tasks(len(all_tasks), config.tasks.num_train, config.tasks.seed)
    with only_writer(histories):
        if (histories / "manifest.json").exists():
            check_same(config, read_manifest(histories)["config"], COMPARED, str(histories))
        elif (folder / "finished.json").exists():
            raise ConfigError(f"{folder} belongs to histories that are gone from {histories}: remove it too")
        if not (folder / "finished.json").exists():
            tasks = {"all": all_tasks.tolist(), "seed": config.tasks.seed} | split._asdict()
            rows = {"num_learners": config.source.num_learners, "num_envs": config.source.num_envs}
            num_steps = config.source.history_steps // config.source.num_envs
            writer = HistoryWriter(histories, env.spec, num_steps, tasks, rows, recorded(config))
            train_tasks = all_tasks[split.train].to(device)
            with playing(config, env, device) as world:
                learner = train(config, world, train_tasks, writer, device)
            writer.finish()
            write_json(folder / "finished.json", examine(config, env, learner, train_tasks, split.held_out))
    announce(config, read_json(folder / "finished.json"))
    return histories


@contextmanager
def playing(config: Config, env: TensorEnv, device: torch.device) -> Iterator[Env[State]]:
    """The environments to learn in: the tensors of `env`, or the same in processes that end with the block."""
    if config.source.vectorization == "tensor":
        yield env
        return
    processes = ProcessEnv(config.env, device)
    try:
        yield processes
    finally:
        processes.close()


def train(
    config: Config, env: Env[State], tasks: Tensor, writer: HistoryWriter, device: torch.device
) -> Learner[tuple[()]]:
    """Run the learners of `tasks` `[G, task_dim]` to the end of their lives, from the newest checkpoint if there is
    one, and record them; returns them."""
    source, folder, options = config.source, config.folder("logs") / "source", config.checkpoints
    learner, streams, noise = make_learners(config, env, tasks, device)
    first, saved = 0, checkpoint.load_newest(folder, "last", device)
    if saved:
        check_same(config, saved[1]["description"], COMPARED, str(folder))
        first, streams = _restore(saved[0], learner, streams)
        if writer.manifest["committed"] < min(unrolled(source, first), writer.num_steps):
            raise ConfigError(f"{folder} belongs to histories that are gone from {writer.folder}: remove it too")
    board = SourceBoard(config, len(tasks), first)
    if saved:
        board.load_state_dict(saved[0]["statistics"])
    total = num_iterations(source)
    every = interval_of(options.num_checkpoints, options.checkpoint_interval, total)
    written = iteration = first

    def save(kind: str, keep: int, **more: Json) -> None:
        state = _state(iteration, learner, streams, board)
        checkpoint.save(folder, kind, iteration, state, recorded(config) | more, keep)

    with Recovery(options.on_crash, lambda error: save("crash", 1, error=error)) as recovery:
        loop = collect(source, env, learner, streams, noise, first)
        for iteration, (transitions, metrics, streams) in enumerate(loop, first + 1):
            writer.add(transitions)
            board.add(iteration, transitions, metrics, learner)
            if iteration == total or is_due(iteration, every) or recovery.save_now:
                writer.commit(unrolled(source, written))
                written = iteration
                save("last", options.keep_last)
                recovery.saved(f"iteration {iteration} of {total}")
    board.close()
    return learner


def announce(config: Config, found: Json) -> None:
    """Print who solved what, and where everything is."""
    unsolved = found["unsolved"]
    print(f"{found['num_tasks'] - len(unsolved)} of {found['num_tasks']} training tasks solved by all their agents")
    for task in unsolved:
        print(f"  not solved: goal {task['goal']}, success of its agents {task['success']}")
    print(f"histories  {config.folder('histories')}")
    print(f"videos     {config.folder('videos') / 'source'}")
    print(f"board      tensorboard --logdir {config.folder('logs')}")


def _state(
    iteration: int, learner: Learner[tuple[()]], streams: Streams[State, tuple[()]], board: SourceBoard
) -> dict[str, Any]:
    """Everything that survives an iteration."""
    return {
        "iteration": iteration,
        "learner": learner.state_dict(),
        "state": streams.state._asdict(),
        "step": streams.step._asdict(),
        "statistics": board.state_dict(),
    }


def _restore(
    saved: Json, learner: Learner[tuple[()]], streams: Streams[State, tuple[()]]
) -> tuple[int, Streams[State, tuple[()]]]:
    learner.load_state_dict(saved["learner"])
    return saved["iteration"], Streams(State(**saved["state"]), type(streams.step)(**saved["step"]), streams.carry)


if __name__ == "__main__":
    run_stage(main, "src.train_agents", __doc__ or "")
