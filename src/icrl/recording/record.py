"""Training and recording of source agents: a run of stage one, or a block of its tasks, from its checks to its end."""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.contracts import ConfigError, Env, Json, PipelineError
from icrl.data.history_store import HistoryWriter, read_manifest
from icrl.envs import make_env
from icrl.envs.core import State, check_playable
from icrl.envs.rollout import Streams
from icrl.envs.tasks import Split, changing, development_of, split_tasks
from icrl.evaluation.diagnostics import filming
from icrl.recording.source_agents import SourceCurves, examine
from icrl.runs import files
from icrl.runs.checkpoint import FINISHED, check_run, load_newest, sidecars
from icrl.runs.device import device_of, prepare
from icrl.runs.evaluations import SOURCE_EVALUATIONS
from icrl.runs.metrics import INSPECTORS, check_writers
from icrl.runs.record import record_session
from icrl.runs.run_state import RunState
from icrl.sources import source_class
from icrl.sources.collect import check_parameters, collect, make_experience, make_learners, make_unroll_worker
from icrl.sources.options import clock_of, num_iterations, unrolled
from icrl.spaces import EnvSpec
from icrl.training.program import check_stage_two


class Part(NamedTuple):
    """The training tasks that a run of stage one is about: the whole, or a block of them. Their learners, streams and
    seeds are those that they have in a run of all."""

    index: int = 0
    count: int = 1

    def block(self, num_tasks: int) -> slice:
        """Its training tasks among `num_tasks`."""
        return slice(num_tasks * self.index // self.count, num_tasks * (self.index + 1) // self.count)


WHOLE = Part()
FOUND = {"num_tasks": int, "unsolved": [{"task": (str, int), "success": [float]}]}  # results of trained agents


def record_part(config: Config, part: Part = WHOLE) -> None:
    """Train and record, or resume, until the histories of a `part` of the training tasks are complete."""
    check_writers(config.summaries)
    check_playable(config.env)
    lacking = "needs an extension that is not installed: give source.evaluate=false"
    refuse(config.source.evaluate and not SOURCE_EVALUATIONS, f"source.evaluate=true {lacking}")
    device, source = prepare(config), config.source
    histories, folder = config.folder("histories"), config.folder("logs") / "source"
    with closing(make_env(config.env, device)) as env:
        all_tasks, split = env.all_tasks(), split_tasks(env, config)
        source_class(source.name).check_spaces(source.name, env.spec)
        development_of(env, config, split.train)  # early checks for stage two
        check_stage_two(config, env.spec)
        for films in filming():
            films.tell(config, env)
        with files.only_writer(histories):
            if (histories / "manifest.json").exists():
                files.check_same(config, read_manifest(histories)["config"], compared(config), str(histories))
            elif (folder / FINISHED).exists() or sidecars(folder, "last"):  # a new store would overwrite the columns
                raise ConfigError(f"{folder} belongs to histories missing from {histories}: restore them, or remove it")
            if not (folder / FINISHED).exists():
                # An asynchronous unroll has its own environments; those here only start the streams.
                with closing(env if source.async_unroll else env.in_workers()) as world:
                    train(config, world, all_tasks, split, part, device)


def examined(config: Config, part: Part = WHOLE) -> Json:
    """Results of the trained agents of a `part` of the training tasks, which are examined unless this is done."""
    device, histories, folder = device_of(config), config.folder("histories"), config.folder("logs") / "source"
    with closing(make_env(config.env, device)) as env, files.only_writer(histories):
        manifest, split = read_manifest(histories), split_tasks(env, config)
        if not (folder / FINISHED).exists():
            tasks = env.all_tasks()[split.train[part.block(len(split.train))]].to(device)
            learner, _, _ = make_learners(config, env, tasks, device)
            saved = load_newest(folder, "last", device)
            if saved is None:
                raise ConfigError(f"the agents of {histories} are missing from {folder}: restore them")
            state, about = saved
            learner.load_state_dict(state["learner"])
            learner.set_clock(clock_of(config.source, about["step"]))
            with closing(env.in_workers()) as world:
                results = examine(config, world, learner, tasks, split.held_out)
            files.write_owned(folder / FINISHED, files.Identity.of(about["description"]), about["step"], results)
        results, whose, _ = files.read_owned(folder / FINISHED, FOUND)
    if manifest["owner"]:
        files.check_owner(folder / FINISHED, whose, files.Identity(**manifest["owner"]))
    if not manifest["complete"]:
        raise PipelineError(f"{folder / FINISHED} exists, but {histories} is not complete: remove {FINISHED}")
    return results


def train(config: Config, env: Env[State], all_tasks: Tensor, split: Split, part: Part, device: torch.device) -> None:
    """Train learners on a `part` of the training tasks among `all_tasks` `[num_tasks, task_dim]`, from the newest
    checkpoint if there is one, and record them."""
    source, folder, block = config.source, config.folder("logs") / "source", part.block(len(split.train))
    own_split = split._replace(train=split.train[block])
    tasks = all_tasks[own_split.train].to(device)
    learner, streams, noise = make_learners(config, env, tasks, device, block.start)
    experience = make_experience(config, env.spec, tasks, device)
    inputs = inputs_of(config, part)
    owner = files.identity_of("train_agents", config, compared(config), inputs)
    described = owner._asdict() | {"config": config.model_dump(), "inputs": inputs}
    run = RunState(folder, described, config.checkpoints, num_iterations(source), device, unit="iteration")
    if run.resumed_from:
        check_continues(config, folder, run.resumed_from, owner, inputs)
    run.restore("learner", learner)
    position = run.restore("streams", Position(streams))
    run.restore("experience", experience)
    writer = make_writer(config, env.spec, all_tasks, own_split, owner)  # after all checks: a refusal leaves no files
    align_writer(config, writer, folder, run.done if run.resumed_from else None)

    def check() -> None:
        check_parameters(learner, source, position.streams, f"after {run.where}")

    def commit() -> None:
        check()
        writer.commit()

    run.before_save = commit
    with ExitStack() as stack:
        curves = SourceCurves(config, env, tasks, run.done)
        run.restore("statistics", curves.statistics)
        run.loggers += [stack.enter_context(logger) for logger in curves.loggers]
        world = changing(env, config, all_tasks.to(device), split.train)
        unrolls = make_unroll_worker(config, world, learner, position.streams, noise, run.done)
        worker = run.restore("unroll_worker", stack.enter_context(closing(unrolls)))
        record_session(config, folder, owner, run.done)
        curves.logger.describe(config)
        num_profiled = config.summaries.profiled_iterations
        iteration_done = stack.enter_context(INSPECTORS[-1].profiled(folder, num_profiled))
        stack.enter_context(run)
        watched = (config, own_split.train, run, learner, check)
        evaluations = SOURCE_EVALUATIONS[-1](*watched) if source.evaluate else nullcontext(lambda: None)
        evaluate_if_due = stack.enter_context(evaluations)
        for transitions, metrics, position.streams in collect(learner, worker, experience, run.done):
            run.done += 1
            if len(transitions.obs):
                writer.add(transitions)  # in memory, until `commit` before a checkpoint
            curves.add(run.done, transitions, metrics, learner)
            evaluate_if_due()
            run.save_if_due()
            iteration_done()
    writer.finish()


def make_writer(config: Config, spec: EnvSpec, all_tasks: Tensor, split: Split, owner: files.Identity) -> HistoryWriter:
    """Writer of the histories of the run `owner`, with disk space reserved for all of them."""
    source = config.source
    tasks = {"all": all_tasks.tolist(), "seed": config.tasks.seed} | split._asdict()
    rows = {"num_learners": source.num_learners, "num_envs": source.num_envs}
    num_steps = source.history_steps // source.num_envs
    return HistoryWriter(config.folder("histories"), spec, num_steps, tasks, rows, config.model_dump(), owner)


class Position:
    """Position of the streams in their episodes; every iteration replaces this part of a run state."""

    def __init__(self, streams: Streams[State, tuple[()]]) -> None:
        self.streams = streams

    def state_dict(self) -> dict[str, Any]:
        state, step, carry = self.streams
        return {"state": state._asdict(), "step": step._asdict(), "carry": _plain(carry)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        now = self.streams
        kept, step = type(now.state)(**state["state"]), type(now.step)(**state["step"])
        self.streams = Streams(kept, step, _like(now.carry, state["carry"]))


def compared(config: Config) -> tuple[str, ...]:
    """Groups of options that must not change when a run resumes."""
    return ("seed", "env", "tasks", "source", *(["evals"] if config.source.evaluate else []))


def inputs_of(config: Config, part: Part = WHOLE) -> Json:
    """Checksums of what the source reads, by option, and the `part`. Raises `ConfigError` if one is missing."""
    inputs = config.source.inputs(config)
    if part.count > 1:
        inputs["shard"] = f"{part.index} of {part.count}"
    return inputs


def check_continues(config: Config, folder: Path, saved: Json, owner: files.Identity, inputs: Json) -> None:
    """Raise `ConfigError` unless the run `owner`, with `config` and `inputs`, may resume from the checkpoint in
    `folder` whose sidecar is `saved`; `PipelineError` if that belongs to another program or run."""
    before = saved["description"]
    if files.has_form(before, {"config": dict, "inputs": {str: str}}):
        files.check_same(config, before["config"], compared(config), str(folder))
        if other := sorted(key for key in inputs if inputs[key] != before["inputs"].get(key)):
            raise ConfigError(f"{folder} was made with another {' and '.join(other)}: restore it or give another name=")
    check_run(folder, saved, owner)


def align_writer(config: Config, writer: HistoryWriter, folder: Path, first: int | None) -> None:
    """Make `writer` continue at iteration `first`, that of the newest checkpoint in `folder` (None: there is none).
    Raises `ConfigError` if one of the two is missing."""
    steps, cure = min(unrolled(config.source, first or 0), writer.num_steps), "restore them, or remove these too"
    lost = first is None and writer.manifest["complete"]
    refuse(lost, f"the agents of the complete histories in {writer.folder} are missing from {folder}: {cure}")
    refuse(writer.manifest["committed"] < steps, f"{folder} belongs to histories missing from {writer.folder}: {cure}")
    writer.keep(steps)


def _plain(carry: Any) -> Any:
    """Carry (tensors in tuples) as lists, because a checkpoint must not contain classes."""
    return [_plain(part) for part in carry] if isinstance(carry, tuple) else carry


def _like(carry: Any, saved: Any) -> Any:
    """Saved carry with the structure of `carry`."""
    if not isinstance(carry, tuple):
        return saved
    parts = [_like(part, saved_part) for part, saved_part in zip(carry, saved, strict=True)]
    return carry._make(parts) if hasattr(carry, "_make") else tuple(parts)
