"""Stage one: train source agents on every training task and record their lives as learning histories.

python -m src.train_agents [KEY=VALUE ...]      -> histories/<name>/, logs/<name>/source/, videos/<name>/source/
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from icrl.collection.async_unroll import make_unroll_worker
from icrl.collection.collect import Learner, UnrollWorker, check_parameters, collect, make_learners
from icrl.collection.experience import Experience
from icrl.collection.pace import clock_of, interval_of, is_due, num_iterations, unrolled
from icrl.collection.source_run import check_continues, compared, go_on_together, inputs_of
from icrl.config.command_line import run_stage
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import ConfigError, Env, EnvSpec, Json, PipelineError, Rollout
from icrl.data.history_store import HistoryWriter, read_manifest
from icrl.envs import make_env
from icrl.envs.core import State, TensorEnv
from icrl.envs.gym.workers import ProcessEnv
from icrl.envs.rollout import Streams
from icrl.envs.tasks import Split, development_of, split_tasks
from icrl.evaluation.evaluators import SourceEvaluator, check_streams
from icrl.evaluation.report import solved
from icrl.plots.source_board import SourceBoard, examine
from icrl.runs import checkpoint
from icrl.runs.device import prepare, recorded
from icrl.runs.evaluations import Evaluations
from icrl.runs.files import only_writer
from icrl.runs.identity import Identity, check_owner, check_same, identity_of, read_owned, write_owned
from icrl.runs.profiling import Profiler
from icrl.runs.record import check_snapshots, texts, write_run_record
from icrl.runs.recovery import Recovery
from icrl.runs.summaries import Summaries
from icrl.training.needs import check_stage_one

_NAMED = 10  # tasks that are named at most
_FOUND = {"num_tasks": int, "unsolved": [{"task": (str, int), "success": [float]}]}


def main(config: Config) -> Path:
    """Train and record, or continue, or say what was found; returns the folder with the histories."""
    snapshots = check_snapshots(config.summaries.code_snapshots, PROJECT)
    device = prepare(config)
    histories, folder = config.folder("histories"), config.folder("logs") / "source"
    finished = folder / checkpoint.FINISHED
    with closing(make_env(config.env, device)) as env:
        all_tasks = env.all_tasks()
        split = split_tasks(env, config)
        development_of(split.train, config.data.num_development_tasks)  # what stage two would refuse is refused now
        with only_writer(histories):
            if (histories / "manifest.json").exists():
                check_same(config, read_manifest(histories)["config"], compared(config), str(histories))
            elif finished.exists():
                raise ConfigError(f"{folder} belongs to histories that are gone from {histories}: remove it too")
            if not finished.exists():
                check_stage_one(config, env.spec, len(split.train), device)
                with playing(config, env, device) as world:
                    learner, owner = train(config, world, all_tasks, split, snapshots, device)
                found = examine(config, env, learner, all_tasks[split.train].to(device), split.held_out)
                write_owned(finished, owner, num_iterations(config.source), found)
            found, whose, _ = read_owned(finished, _FOUND)
            manifest = read_manifest(histories)
            if manifest["owner"]:  # not of histories that an older version recorded
                check_owner(finished, whose, Identity(**manifest["owner"]))
            if not manifest["complete"]:
                raise PipelineError(f"{finished} is there, and {histories} is not complete: remove {finished.name}")
        announce(config, env.spec, found)
    return histories


@contextmanager
def playing(config: Config, env: TensorEnv, device: torch.device) -> Iterator[Env[State]]:
    """The environments to learn in: `env`, or the same in processes that end with the block. Where another process
    plays, it makes its own, and those here only start the streams."""
    if config.source.vectorization == "tensor" or config.source.async_unroll:
        yield env
        return
    with closing(ProcessEnv(config.env, config.source.num_workers, device)) as processes:
        yield processes


def train(
    config: Config,
    env: Env[State],
    all_tasks: Tensor,
    split: Split,
    snapshots: list[Path],
    device: torch.device,
) -> tuple[Learner, Identity]:
    """Run the learners of the training tasks among `all_tasks` `[num_tasks, task_dim]` to the end of their lives, from
    the newest checkpoint if there is one, and record them; returns them, and which run this is."""
    folder, num_tasks = config.folder("logs") / "source", len(split.train)
    learner, streams, noise = make_learners(config, env, all_tasks[split.train].to(device), device)
    experience = Experience(config, env.spec, all_tasks[split.train], device)
    if config.source.evaluate:
        check_streams(config, learner, num_tasks)
    inputs = inputs_of(config, device)
    owner = identity_of("train_agents", config, compared(config), inputs)
    described = owner._asdict() | {"config": recorded(config), "inputs": inputs}
    first, saved = 0, checkpoint.load_newest(folder, "last", device)
    if saved:
        check_continues(config, folder, saved[1], owner, inputs)
        first, streams = _restore(saved[0], learner, streams)
        experience.load_state_dict(saved[0]["experience"])
    writer = recording(
        config, env.spec, all_tasks, split, owner
    )  # only now: what was refused before must leave nothing
    go_on_together(config, writer, folder, first if saved else None)
    with ExitStack() as stack:
        board = stack.enter_context(SourceBoard(config, env.spec, num_tasks, first))
        if saved:
            board.load_state_dict(saved[0]["statistics"])
        player = stack.enter_context(closing(make_unroll_worker(config, env, learner, streams, noise, first)))
        if saved:
            player.load_state_dict(saved[0]["player"])
        record = write_run_record(folder, PROJECT, recorded(config), sys.argv, snapshots, owner, first)
        board.texts(texts(record))
        lives = SourceRunState(config, learner, player, experience, streams, writer, board, first, described)
        if first < config.source.pretraining:
            lives.pretraining = stack.enter_context(board_of_pretraining(config, first))
        if config.source.evaluate:
            lives.evaluations = stack.enter_context(evaluating(config, split.train, first, described))
        profiler = stack.enter_context(Profiler(folder, config.summaries.profiled_iterations, tqdm.write))
        recovery = stack.enter_context(Recovery(config.checkpoints.on_crash, lives.save_crash))
        lives.evaluate()
        for transitions, metrics, now in collect(learner, player, experience, first):
            lives.add(transitions, metrics, now)
            lives.evaluate()
            lives.save_if_due(recovery)
            profiler.step()
        if lives.evaluations:
            recovery.finish(lives.evaluations.wait, lives.where)
    writer.finish()
    return learner, owner


def recording(config: Config, spec: EnvSpec, all_tasks: Tensor, split: Split, owner: Identity) -> HistoryWriter:
    """The histories to write, of the run `owner`, with disk space for all of them."""
    source = config.source
    tasks = {"all": all_tasks.tolist(), "seed": config.tasks.seed} | split._asdict()
    rows = {"num_learners": source.num_learners, "num_envs": source.num_envs}
    num_steps = source.history_steps // source.num_envs
    return HistoryWriter(config.folder("histories"), spec, num_steps, tasks, rows, recorded(config), owner)


class SourceRunState:
    """What changes with every iteration of stage one, and survives it in checkpoints."""

    def __init__(
        self,
        config: Config,
        learner: Learner,
        player: UnrollWorker,
        experience: Experience,
        streams: Streams[State, tuple[()]],
        writer: HistoryWriter,
        board: SourceBoard,
        first: int,
        described: Json,
    ) -> None:
        """`described` goes beside checkpoints."""
        self.config, self.learner, self.player, self.experience = config, learner, player, experience
        self.streams, self.writer, self.board, self.described = streams, writer, board, described
        self.evaluations: Evaluations | None = None
        self.pretraining: Summaries | None = None
        self.iteration = self._written = first
        self.total, self._online_from = num_iterations(config.source), config.source.pretraining
        options, evals, shown = config.checkpoints, config.evals, config.summaries
        self._per_checkpoint = interval_of(options.num_checkpoints, options.checkpoint_interval, self.total)
        self._per_evaluation = interval_of(evals.num_evals, evals.eval_interval, self.total - self._online_from)
        self._per_point = interval_of(shown.num_summaries, shown.summary_interval, self._online_from)

    def add(self, transitions: Rollout, metrics: dict[str, Tensor], streams: Streams[State, tuple[()]]) -> None:
        """Take in an iteration: its transitions `[T, B]`, the metrics of its last update, where streams stand. The
        board is over env steps, of which a pretraining makes none; that is shown over updates."""
        self.iteration += 1
        self.streams = streams
        if len(transitions.obs):
            self.writer.add(transitions)
            self.board.add(self.iteration, transitions, metrics, self.learner)
        elif self.pretraining and self._is_point():
            means = {name: value.mean().item() for name, value in metrics.items()}
            self.pretraining.scalars("pretraining", means, clock_of(self.config.source, self.iteration).updates)

    def _is_point(self) -> bool:
        early = self.config.summaries.summarize_first_interval and self.iteration < self._per_point
        return early or is_due(self.iteration, self._per_point)

    def evaluate(self) -> None:
        """Evaluator at the agents where it is time to: for the first time before the first env step."""
        if self.evaluations is None:
            return
        online = self.iteration - self._online_from
        if online == 0 or self.iteration == self.total or (online > 0 and is_due(online, self._per_evaluation)):
            source = self.config.source
            self._check()
            steps = unrolled(source, self.iteration) * source.num_envs
            self.evaluations.start(steps, {"learner": self.learner.state_dict()})
        self.evaluations.poll()

    @property
    def where(self) -> str:
        return f"iteration {self.iteration} of {self.total}"

    def save_if_due(self, recovery: Recovery) -> None:
        """At each interval, at the end and where a signal asks for it: commit what was recorded, then write a
        checkpoint."""
        asked = recovery.save_now
        if asked or self.iteration == self.total or is_due(self.iteration, self._per_checkpoint):
            self._check()
            self.writer.commit(unrolled(self.config.source, self._written))
            self._written = self.iteration
            self._save("last", self.described, self.config.checkpoints.keep_last)
        if asked:
            recovery.saved(self.where, recovery.stop_now)

    def _check(self) -> None:
        check_parameters(self.learner, self.config.source, self.streams, f"after {self.where}")

    def save_crash(self, error: str) -> None:
        """Put the state of a failed run aside, for a look at it; no run goes on from it."""
        self._save("crash", self.described | {"error": error}, 1)

    def _save(self, kind: str, description: Json, keep: int) -> None:
        if self.pretraining:
            self.pretraining.flush()
        state = {
            "iteration": self.iteration,
            "learner": self.learner.state_dict(),
            "state": self.streams.state._asdict(),
            "step": self.streams.step._asdict(),
            "carry": _plain(self.streams.carry),
            "player": self.player.state_dict(),
            "experience": self.experience.state_dict(),
            "statistics": self.board.state_dict(),
        }
        checkpoint.save(self.config.folder("logs") / "source", kind, self.iteration, state, description, keep)


def evaluating(config: Config, train_tasks: list[int], first: int, described: Json) -> Evaluations:
    """Evaluations of the agents of `train_tasks`, which go on from iteration `first`; steps are env steps a learner.
    Those that were pretrained may be best at step 0."""
    look, pretrained = SourceEvaluator(config, train_tasks), config.source.pretraining
    done = unrolled(config.source, first) * config.source.num_envs if first >= max(pretrained, 1) else -1
    folder, trained = config.folder("logs") / "source", 0 if pretrained else 1
    return Evaluations(folder, "evaluation", look, config.evals, done, described, tqdm.write, trained)


def board_of_pretraining(config: Config, first: int) -> Summaries:
    """Curves over updates, in a folder of their own: a step of a folder's curves hides what comes after it."""
    folder, options = config.folder("logs") / "source" / "pretraining", config.summaries
    return Summaries(folder, clock_of(config.source, first).updates, options.flush_secs, options.max_queue)


def announce(config: Config, spec: EnvSpec, found: Json) -> None:
    """Print who solved what, and where everything is."""
    unsolved, num_tasks = found["unsolved"], found["num_tasks"]
    print(f"{num_tasks - len(unsolved)} of {num_tasks} training tasks {solved(spec)} by all their agents")
    for task in unsolved[:_NAMED]:
        print(f"  not solved: {task['task']}, success of its agents {task['success']}")
    if len(unsolved) > _NAMED:
        print(f"  ... and {len(unsolved) - _NAMED} more")
    print(f"histories  {config.folder('histories')}")
    if (videos := config.folder("videos") / "source").exists():
        print(f"videos     {videos}")
    print(f"board      tensorboard --logdir {config.folder('logs')}")


def _restore(
    saved: Json, learner: Learner, streams: Streams[State, tuple[()]]
) -> tuple[int, Streams[State, tuple[()]]]:
    learner.load_state_dict(saved["learner"])
    state, step = type(streams.state)(**saved["state"]), type(streams.step)(**saved["step"])
    return saved["iteration"], Streams(state, step, _like(streams.carry, saved.get("carry", [])))


def _plain(carry: Any) -> Any:
    """A carry, tensors in tuples, as lists: what is read back must not name classes."""
    return [_plain(part) for part in carry] if isinstance(carry, tuple) else carry


def _like(carry: Any, saved: Any) -> Any:
    """What `_plain` made of a carry, as a carry of the form that `carry` has."""
    if not isinstance(carry, tuple):
        return saved
    parts = [_like(part, of_saved) for part, of_saved in zip(carry, saved, strict=True)]
    return type(carry)(*parts) if parts else ()


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.train_agents", __doc__ or "")
