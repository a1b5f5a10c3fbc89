"""Stage one: train source agents on every training task and record their lives as learning histories.

    python -m src.train_agents [KEY=VALUE ...]      -> histories/<name>/, logs/<name>/source/, videos/<name>/source/
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from src.config import Config, EnvConfig, check_same
from src.contracts import Json
from src.data.history_store import HistoryWriter, read_manifest
from src.envs import make_env
from src.envs.base import State, TensorEnv
from src.envs.rollout import Streams, start_streams
from src.envs.tasks import Split, split_tasks, streams_of
from src.evaluation.source_board import SourceBoard
from src.files import only_writer
from src.randomness import Noise, stream_seeds
from src.runtime import prepare, recorded, run_stage
from src.sources.a2c import A2C
from src.training import checkpoint
from src.training.collect import EpisodeStatistics, collect


SOURCES = {"a2c": A2C}
_COMPARED = ("seed", "env", "tasks", "source")


def main(config: Config) -> Path:
    """Train and record, or continue; returns the folder with the histories."""
    device = prepare(config)
    source, histories = config.source, config.folder("histories")
    env = make_env(config.env, device)
    all_tasks = env.all_tasks()
    split = split_tasks(len(all_tasks), config.tasks.num_train, config.tasks.seed)
    with only_writer(histories):
        if (histories / "manifest.json").exists():
            check_same(config, read_manifest(histories)["config"], _COMPARED, str(histories))
        tasks = {"all": all_tasks.tolist(), "train": split.train, "held_out": split.held_out, "seed": config.tasks.seed}
        rows = {"num_learners": source.num_learners, "num_envs": source.num_envs}
        writer = HistoryWriter(
            histories, env.spec, source.history_steps // source.num_envs, tasks, rows, recorded(config)
        )
        if not writer.manifest["complete"]:
            train(config, env, all_tasks[split.train].to(device), writer, device)
            writer.finish()
    return histories


def make_learners(
    config: Config, env: TensorEnv, tasks: Tensor, device: torch.device
) -> tuple[A2C, Streams[State, tuple[()]], Noise]:
    """Fresh learners for `tasks` `[G, task_dim]`, `source.num_learners` of each with `source.num_envs` streams."""
    source = config.source
    num_learners = len(tasks) * source.num_learners
    num_streams = num_learners * source.num_envs
    starts, noise, parameters = (
        stream_seeds(config.seed, n, purpose).to(device)
        for purpose, n in enumerate((num_streams, num_streams, num_learners))
    )
    learner = SOURCES[source.name](source, env.spec, parameters, device)
    streams = start_streams(learner, env, streams_of(tasks, source.num_learners * source.num_envs), starts)
    return learner, streams, Noise(noise)


def train(config: Config, env: TensorEnv, tasks: Tensor, writer: HistoryWriter, device: torch.device) -> None:
    """Run the learners to the end of their lives, from the newest checkpoint if there is one."""
    source, folder = config.source, config.folder("logs") / "source"
    learner, streams, noise = make_learners(config, env, tasks, device)
    saved = checkpoint.load_newest(folder, "last", device)
    first = 0
    if saved:
        first, streams = _restore(saved[0], learner, streams, noise)
    num_updates = source.num_env_steps // source.num_envs // source.rollout_len
    per_checkpoint = source.checkpoint_interval // source.rollout_len
    board = SourceBoard(config, len(tasks), first)
    written = first
    loop = collect(env, learner, streams, noise, source.rollout_len)
    for update, (transitions, metrics, streams) in zip(range(first + 1, num_updates + 1), loop, strict=False):
        writer.add(transitions)
        board.add(update, transitions, metrics)
        if update % per_checkpoint == 0 or update == num_updates:
            writer.commit(written * source.rollout_len)
            written = update
            checkpoint.save(folder, "last", update, _state(update, learner, streams, noise), recorded(config), 2)
    board.close()


def _state(update: int, learner: A2C, streams: Streams[State, tuple[()]], noise: Noise) -> dict[str, Any]:
    """Everything that survives an update."""
    return {
        "update": update,
        "learner": learner.state_dict(),
        "state": streams.state._asdict(),
        "step": streams.step._asdict(),
        "noise_time": noise.time,
    }


def _restore(
    saved: Json, learner: A2C, streams: Streams[State, tuple[()]], noise: Noise
) -> tuple[int, Streams[State, tuple[()]]]:
    learner.load_state_dict(saved["learner"])
    noise.time = saved["noise_time"]
    return saved["update"], Streams(State(**saved["state"]), type(streams.step)(**saved["step"]), streams.carry)


if __name__ == "__main__":
    run_stage(main, "src.train_agents", __doc__ or "")
