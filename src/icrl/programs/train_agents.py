"""Stage one: train source agents on every training task and record their learning histories.

python -m src.train_agents [KEY=VALUE ...]      -> histories/<name>/, logs/<name>/source/, videos/<name>/source/
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from icrl.collection.async_unroll import make_unroll_worker
from icrl.collection.collect import Learner, check_parameters, collect, make_learners
from icrl.collection.experience import Experience
from icrl.collection.source_run import Position, align_writer, check_continues, compared, inputs_of
from icrl.config.command_line import run_stage
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import ConfigError, Env, EnvSpec, Json, PipelineError
from icrl.data.history_store import HistoryWriter, read_manifest
from icrl.envs import make_env
from icrl.envs.core import State, TensorEnv
from icrl.envs.gym.workers import ProcessEnv
from icrl.envs.tasks import Split, development_of, split_tasks
from icrl.evaluation.report import solved
from icrl.evaluation.trained import SourceEvaluator, check_streams
from icrl.plots.source_agents import SourceCurves, examine
from icrl.runs.checkpoint import FINISHED, Interval
from icrl.runs.device import prepare, recorded
from icrl.runs.evaluations import Evaluations
from icrl.runs.files import Identity, check_owner, check_same, identity_of, only_writer, read_owned, write_owned
from icrl.runs.metrics import MetricLogger, profiled
from icrl.runs.record import check_snapshots, record_session
from icrl.runs.run_state import RunState
from icrl.sources.pace import clock_of, num_iterations, unrolled
from icrl.training.needs import check_stage_one

_NAMED = 10  # unsolved tasks that are printed
_FOUND = {"num_tasks": int, "unsolved": [{"task": (str, int), "success": [float]}]}


def main(config: Config) -> Path:
    """Train and record, or resume, or print the results; returns the folder with the histories."""
    check_snapshots(config.summaries.code_snapshots, PROJECT)
    device = prepare(config)
    histories, folder = config.folder("histories"), config.folder("logs") / "source"
    finished = folder / FINISHED
    with closing(make_env(config.env, device)) as env:
        all_tasks = env.all_tasks()
        split = split_tasks(env, config)
        development_of(split.train, config.data.num_development_tasks)  # early check for stage two
        with only_writer(histories):
            if (histories / "manifest.json").exists():
                check_same(config, read_manifest(histories)["config"], compared(config), str(histories))
            elif finished.exists():
                raise ConfigError(f"{folder} belongs to histories missing from {histories}: restore them, or remove it")
            if not finished.exists():
                check_stage_one(config, env.spec, len(split.train), device)
                with training_env(config, env, device) as world:
                    learner, owner = train(config, world, all_tasks, split, device)
                found = examine(config, env, learner, all_tasks[split.train].to(device), split.held_out)
                write_owned(finished, owner, num_iterations(config.source), found)
            found, whose, _ = read_owned(finished, _FOUND)
            manifest = read_manifest(histories)
            if manifest["owner"]:  # histories of older versions have none
                check_owner(finished, whose, Identity(**manifest["owner"]))
            if not manifest["complete"]:
                raise PipelineError(f"{finished} exists, but {histories} is not complete: remove {finished.name}")
        announce(config, env.spec, found)
    return histories


@contextmanager
def training_env(config: Config, env: TensorEnv, device: torch.device) -> Iterator[Env[State]]:
    """Training environments: `env`, or worker processes that end with the block. An asynchronous unroll has its own
    environments; those here only start the streams."""
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
    device: torch.device,
) -> tuple[Learner, Identity]:
    """Train learners on the training tasks among `all_tasks` `[num_tasks, task_dim]`, from the newest checkpoint if
    there is one, and record them; returns them and the identity of the run."""
    source, folder, num_tasks = config.source, config.folder("logs") / "source", len(split.train)
    learner, streams, noise = make_learners(config, env, all_tasks[split.train].to(device), device)
    experience = Experience(config, env.spec, all_tasks[split.train], device)
    if source.evaluate:
        check_streams(config, learner, num_tasks)
    inputs = inputs_of(config, device)
    owner = identity_of("train_agents", config, compared(config), inputs)
    described = owner._asdict() | {"config": recorded(config), "inputs": inputs}
    run = RunState(folder, described, config.checkpoints, num_iterations(source), device, unit="iteration")
    if run.resumed_from:
        check_continues(config, folder, run.resumed_from, owner, inputs)
    run.add("learner", learner)
    position = run.add("streams", Position(streams))
    run.add("experience", experience)
    writer = make_writer(config, env.spec, all_tasks, split, owner)  # after all checks: a refusal must leave no files
    align_writer(config, writer, folder, run.done if run.resumed_from else None)
    with ExitStack() as stack:
        curves = stack.enter_context(SourceCurves(config, env.spec, num_tasks, run.done))
        run.add("statistics", curves.statistics)
        run.loggers += curves.loggers
        unrolls = make_unroll_worker(config, env, learner, position.streams, noise, run.done)
        worker = run.add("unroll_worker", stack.enter_context(closing(unrolls)))
        curves.loggers[0].texts(record_session(config, folder, owner, run.done))
        pretraining_logger = pretraining_metrics(config, run, stack)
        evaluation = SourceEvaluations(config, split.train, run, learner, position, stack)
        commit_at_save(config, run, writer, learner, position)
        iteration_done = stack.enter_context(profiled(folder, config.summaries.profiled_iterations))
        stack.enter_context(run)
        evaluation.start_if_due()
        for transitions, metrics, position.streams in collect(learner, worker, experience, run.done):
            run.done += 1
            if len(transitions.obs):
                writer.add(transitions)
                curves.add(run.done, transitions, metrics, learner)
            elif pretraining_logger and pretraining_logger.due(run.done):
                means = {name: value.mean().item() for name, value in metrics.items()}
                pretraining_logger.scalars("pretraining", means, clock_of(source, run.done).updates)
            evaluation.start_if_due()
            run.save_if_due()
            iteration_done()
        evaluation.finish()
    writer.finish()
    return learner, owner


def make_writer(config: Config, spec: EnvSpec, all_tasks: Tensor, split: Split, owner: Identity) -> HistoryWriter:
    """Writer of the histories of the run `owner`, with disk space reserved for all of them."""
    source = config.source
    tasks = {"all": all_tasks.tolist(), "seed": config.tasks.seed} | split._asdict()
    rows = {"num_learners": source.num_learners, "num_envs": source.num_envs}
    num_steps = source.history_steps // source.num_envs
    return HistoryWriter(config.folder("histories"), spec, num_steps, tasks, rows, recorded(config), owner)


def commit_at_save(config: Config, run: RunState, writer: HistoryWriter, learner: Learner, position: Position) -> None:
    """Before each save, check that all parameters are finite, and commit the recorded steps since the previous one."""
    written = run.done

    def commit() -> None:
        nonlocal written
        check_parameters(learner, config.source, position.streams, f"after {run.where}")
        writer.commit(unrolled(config.source, written))
        written = run.done

    run.before_save = commit


def pretraining_metrics(config: Config, run: RunState, stack: ExitStack) -> MetricLogger | None:
    """Logger of the pretraining, over updates because it makes no env steps. It has a separate folder, because resuming
    at a step hides all later points of a folder."""
    total, folder = config.source.pretraining, config.folder("logs") / "source" / "pretraining"
    if run.done >= total:
        return None
    logger = MetricLogger(folder, clock_of(config.source, run.done).updates, config.summaries, total)
    run.loggers.append(stack.enter_context(logger))
    return logger


class SourceEvaluations:
    """Evaluations of the agents over env steps per learner, from step 0."""

    def __init__(
        self,
        config: Config,
        train_tasks: list[int],
        run: RunState,
        learner: Learner,
        position: Position,
        stack: ExitStack,
    ) -> None:
        self._source, self._run, self._learner, self._position = config.source, run, learner, position
        self._online_from, evals = config.source.pretraining, config.evals
        self._interval = Interval(evals.num_evals, evals.eval_interval, run.total - self._online_from, end=True)
        self._evaluations: Evaluations | None = None
        if config.source.evaluate:
            done = self._env_steps if run.done >= max(self._online_from, 1) else -1
            evaluator, trained = SourceEvaluator(config, train_tasks), 0 if self._online_from else 1
            place = (run.folder, "evaluation", evaluator, evals, done, run.description, tqdm.write)
            self._evaluations = stack.enter_context(Evaluations(*place, trained))  # a pretrained agent may be the best

    @property
    def _env_steps(self) -> int:
        return unrolled(self._source, self._run.done) * self._source.num_envs

    def start_if_due(self) -> None:
        if self._evaluations is None:
            return
        online = self._run.done - self._online_from
        if online == 0 or self._interval.due(online):
            check_parameters(self._learner, self._source, self._position.streams, f"after {self._run.where}")
            self._evaluations.start(self._env_steps, {"learner": self._learner.state_dict()})
        self._evaluations.poll()

    def finish(self) -> None:
        if self._evaluations:
            self._run.finish(self._evaluations.wait)


def announce(config: Config, spec: EnvSpec, found: Json) -> None:
    """Print which tasks were solved, and the folders of the results."""
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


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.train_agents", __doc__ or "")
