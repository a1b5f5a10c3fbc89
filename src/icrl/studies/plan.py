"""Plan of a study: its runs, composed and checked before any work, and the jobs that make them.

Every variant is trained with every seed. Runs with the same world, tasks, source and seed share their histories. Runs
that differ only in how they are evaluated share everything that is trained: model, critic and extracted policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import make_env
from icrl.envs.tasks import development_of, split_tasks
from icrl.evaluation.results import read_results
from icrl.evaluation.trained import changes_of, new_tasks, policy_suffixes, readable_spec, suffix_of
from icrl.runs.device import recorded
from icrl.runs.files import check_same, digest

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.nn.gpt_policy import PolicyConfig

_OF_STUDY = ("seed", "histories", "run", "num_threads")  # options that the study sets for each run
_OF_HISTORIES = ("seed", "env", "tasks", "source", "evals")
_OF_EVALUATION = ("name", "run", "evaluation", "study")
_OF_ALL = ("seed", "env", "tasks", "source", "data", "model", "optimizer", "trainer", "device", "policy", "evaluation")
_OF_PROGRAM = {"train_gpt": ("objective",), "train_ilql": ("encoder", "decoder", "critic"), "extract_policy": ("awr",)}
_ALLOWED = {  # keys of a variant
    "label": "must be a text with letters or digits",
    "set": "must be a list of KEY=VALUE",
    "x": "must be a number, or a name",
    "line": "must be a name",
    "test": "must be worlds, a label and a list of KEY=VALUE each",
}


class Job(NamedTuple):
    """Commands to run one after the other: programs with their options."""

    name: str
    commands: list[list[str]]
    needs: str  # the job that collects its histories; empty: none
    updates: int  # of all that it trains


class Row(NamedTuple):
    """A variant in one of the worlds of its evaluations."""

    variant: str
    test: str  # the world; empty: the training world
    x: float | str | None  # place on the axis
    line: str  # through such places
    config: Config  # with the first seed
    folders: list[Path]  # of results, one for each seed
    models: list[list[Path]]  # everything trained for it, for each seed


class Plan(NamedTuple):
    """Study with its results and the work that is left."""

    config: Config
    rows: list[Row]
    jobs: list[Job]  # a needed job comes before those that need it


class _Variant(BaseModel, strict=True, extra="forbid"):
    label: str = Field(pattern="[A-Za-z0-9]")
    set: list[str] = []
    x: float | str | None = None
    line: Any = ""
    test: dict[Any, list[str]] = Field({"": list[str]()}, min_length=1)

    @property
    def slug(self) -> str:
        """The label as part of a folder's name."""
        return re.sub(r"[^a-z0-9.]+", "-", self.label.lower()).strip("-.")


class _Run(NamedTuple):
    config: Config
    options: list[str]  # which give the config


def plan(options: Sequence[str]) -> Plan:
    """Plan the study of the command line `options`.

    Raises `ConfigError` for a variant that cannot be run, and for results that were made with other options."""
    config = load_config(options)
    _check_not_reserved(options, _OF_STUDY)
    variants = [_variant(written) for written in config.study.variants]
    _check_variants(config, variants)
    rows: list[Row] = []
    jobs = _Jobs()
    for variant in variants:
        try:
            rows += _rows_of(config, options, variant, jobs)
        except PipelineError as error:
            raise ConfigError(f"study.variants, {variant.label}: {error}") from error
    if len({type(row.x) for row in rows}) > 1:
        raise ConfigError(
            "study.variants: all of them must have a number as `x` (or as labels of `test`), all a name, or none"
        )
    return Plan(config, rows, jobs.missing())


def _variant(written: dict[str, Any]) -> _Variant:
    label = written.get("label")
    where = f"study.variants, {label or written}"
    try:
        variant = _Variant.model_validate(written)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        if key not in _ALLOWED:
            raise ConfigError(f"{where}: {key} is unknown; a variant has {', '.join(sorted(_ALLOWED))}") from error
        value = f"{key}={written[key]}" if key in written else f"`{key}`"
        raise ConfigError(f"{where}: {value} {_ALLOWED[key]}") from error
    if "test" in written and (variant.x is not None or variant.line):
        raise ConfigError(f"{where}: `x` and `line` are for variants without `test`, whose labels are places")
    for texts in (variant.set, *variant.test.values()):
        _check_not_reserved(texts, (*_OF_STUDY, "name", "root", "study"))
    return variant


def _check_variants(config: Config, variants: Sequence[_Variant]) -> None:
    slugs, seeds = [variant.slug for variant in variants], config.study.seeds
    if not slugs:
        raise ConfigError("study.variants=[]: must have a variant; study=NAME chooses a study, --help lists the names")
    if twice := {variant.label for variant in variants if slugs.count(variant.slug) > 1}:
        raise ConfigError(f"study.variants: {', '.join(sorted(twice))}: labels must differ in letters or digits")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"study.seeds={seeds}: must be one seed, or several that differ")


def _check_not_reserved(options: Sequence[str], reserved: Sequence[str]) -> None:
    for option in options:
        key = option.partition("=")[0].lstrip("+~")
        if key in reserved or key.partition(".")[0] in {"study"} & set(reserved):
            raise ConfigError(
                f"{option}: a study sets this for all of its runs; give study.seeds or name= to the study"
            )


class _Jobs:
    """Jobs by name; each thing to do is in them once, however many rows need it."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._models: dict[str, str] = {}  # name by digest of the options
        self._not_done: set[str] = set()

    def add_histories(self, run: _Run) -> None:
        """Add the collection of the histories of `run`."""
        name = run.config.name
        self._jobs.setdefault(name, Job(name, [["train_agents", *run.options]], "", 0))

    def model_for(self, config: Config) -> str:
        """Name of the model of a run: its own, or that of an earlier run with the same training."""
        ignored = {*_OF_EVALUATION, *(() if config.trainer.evaluate else ("policy",))}
        made_with = {key: value for key, value in recorded(config).items() if key not in ignored}
        return self._models.setdefault(digest(made_with), config.name)

    def add_models(self, run: _Run, programs: Iterable[str]) -> None:
        """Add training `programs` of `run`, each after those that it waits for."""
        config = run.config
        job = self._jobs.get(config.run, Job(config.run, [], config.histories[0], 0))
        for program in programs:
            if program not in (command[0] for command in job.commands):
                job.commands.append([program, *run.options])
                job = job._replace(updates=job.updates + config.trainer.num_iterations)
        self._jobs[config.run] = job

    def add_evaluation(self, run: _Run, folder: Path) -> None:
        """Add an evaluation. Raises `ConfigError` if `folder` has results of a run with other options."""
        job = self._jobs[run.config.run]
        job.commands.append(["evaluate", *run.options])
        if (folder / "results.json").exists():
            compared = [group for program in trained_for(run.config.policy).values() for group in _OF_PROGRAM[program]]
            check_same(run.config, read_results(folder)[0]["config"], (*_OF_ALL, *compared), str(folder))
        else:
            self._not_done |= {job.name, job.needs}

    def missing(self) -> list[Job]:
        """Jobs of which a result is missing, histories first: they are short, and many jobs wait for them."""
        return sorted(
            (job for job in self._jobs.values() if job.name in self._not_done), key=lambda job: bool(job.needs)
        )


def trained_for(policy: PolicyConfig) -> dict[str, str]:
    """Parts to train before `policy` can act: folders of a run and the programs that fill them, in order."""
    parts = {"gpt": "train_gpt"} if policy.model == "gpt" else {}
    if policy.model != "gpt" or policy.advantage_scale:
        parts["ilql"] = "train_ilql"
    if policy.model not in ("gpt", "critic"):
        parts[policy.model] = "extract_policy"
    return parts


def _rows_of(study: Config, options: Sequence[str], variant: _Variant, jobs: _Jobs) -> list[Row]:
    """Rows of a variant; the work for them is added to `jobs`."""
    ours = [*options, *variant.set]
    composed = load_config(ours)
    trained: dict[str, _Run] = {}  # runs of the models, by the name of the evaluated run
    for seed in study.study.seeds:
        source = {group: recorded(composed)[group] for group in _OF_HISTORIES} | {"seed": seed}
        histories = f"{study.name}-histories-{digest(source)[:8]}-seed{seed}"
        jobs.add_histories(_run(composed, ours, seed, histories, histories, histories))
        name = f"{study.name}-{variant.slug}-seed{seed}"
        model = jobs.model_for(_run(composed, ours, seed, name, histories, name).config)
        trained[name] = _run(composed, ours, seed, model, histories, model)
    rows: list[Row] = []
    for test, changes in variant.test.items():
        there = load_config([*ours, *changes]) if changes else composed
        parts = trained_for(there.policy)
        suffix = suffix_of(_changes(there, composed) | policy_suffixes(there.policy), there.evaluation.tasks)
        evaluated: list[Config] = []
        folders: list[Path] = []
        for name, (model, _) in trained.items():
            run = _run(there, [*ours, *changes], model.seed, name, model.histories[0], model.name)
            evaluated.append(run.config)
            folders.append(run.config.folder("logs") / f"evaluation{suffix}")
            jobs.add_models(trained[name], parts.values())
            jobs.add_evaluation(run, folders[-1])
        models = [[config.run_folder / part for part in parts] for config in evaluated]
        line = str(variant.line or (variant.label if isinstance(variant.x, str) else ""))
        x, line = (variant.x, line) if test == "" else (_number(str(test)), variant.label)
        rows.append(Row(variant.label, str(test), x, line, evaluated[0], folders, models))
    return rows


def _run(composed: Config, options: Sequence[str], seed: int, name: str, histories: str, model: str) -> _Run:
    """A run with the options that the study sets."""
    updates = max(1, round(composed.trainer.num_iterations * composed.study.scale))
    set_here = {"seed": seed, "name": name, "run": model, "num_threads": 1}
    config = replace(
        composed, **set_here, histories=[histories], trainer=replace(composed.trainer, num_iterations=updates)
    )
    texts = [f"{key}={value}" for key, value in set_here.items()]
    return _Run(config, [*options, *texts, f"histories={histories}", f"trainer.num_iterations={updates}"])


def _changes(there: Config, trained: Config) -> dict[str, Any]:
    """Differences between the world of an evaluation and that of the training.

    Raises `PipelineError` if a world has too few tasks, or the model cannot act in the world of the evaluation."""
    with closing(make_env(trained.env)) as env:
        spec, all_tasks, split = env.spec, env.all_tasks(), split_tasks(env, trained)
    development_of(split.train, trained.data.num_development_tasks)
    changes = changes_of(there, recorded(trained))
    if changes:
        with closing(make_env(there.env)) as env:
            readable_spec(there, env.spec, spec._asdict())
            new_tasks(there, env, recorded(trained), split._asdict() | {"all": all_tasks.tolist()})
    return changes


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
