"""What a study has to do: its runs, composed and checked before any work, and what they share.

Every variant is trained with every seed. Runs with the same world, tasks, source and seed share their histories, and
those that differ in who plays and how alone share all that is trained: model, critic and extracted policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import make_env
from icrl.envs.tasks import development_of, split_tasks
from icrl.evaluation.policies import suffixes_of
from icrl.evaluation.saved_results import read_results
from icrl.evaluation.transfer import changes_of, new_tasks, readable_spec, suffix_of
from icrl.runs.device import recorded
from icrl.runs.files import digest
from icrl.runs.identity import check_same

if TYPE_CHECKING:
    from icrl.config.root import Config, PolicyConfig

_OF_STUDY = ("seed", "histories", "run", "num_threads")  # a run cannot say itself
_KEYS = {"label", "set", "x", "line", "test"}
_OF_HISTORIES = ("seed", "env", "tasks", "source", "evals")
_OF_PLAYING = ("name", "run", "evaluation", "study")
_OF_ALL = ("seed", "env", "tasks", "source", "data", "model", "optimizer", "trainer", "device", "policy", "evaluation")
_OF_PROGRAM = {
    "src.train_gpt": ("objective",),
    "src.train_ilql": ("encoder", "decoder", "critic"),
    "src.extract_policy": ("awr",),
}


class Job(NamedTuple):
    """Commands to run one after the other: modules with their options."""

    name: str
    commands: list[list[str]]
    needs: str  # the job that makes its histories; empty: none
    updates: int  # of all that it trains


class Row(NamedTuple):
    """A variant in one of the worlds it is evaluated in."""

    variant: str
    test: str  # the world; empty: the one it was trained in
    x: float | str | None  # its place on the axis
    line: str  # through such places
    config: Config  # with its first seed
    folders: list[Path]  # of results, one for each seed
    models: list[list[Path]]  # all that is trained for it, for each seed


class Plan(NamedTuple):
    """All of a study."""

    config: Config
    rows: list[Row]
    jobs: list[Job]  # what is not done; a job that is needed comes before those that need it


class _Variant(NamedTuple):
    label: str
    slug: str
    options: list[str]
    x: float | str | None
    line: str
    tests: dict[str, list[str]]


class _Run(NamedTuple):
    config: Config
    options: list[str]  # which give the config


def plan(options: Sequence[str]) -> Plan:
    """The study that the command line `options` ask for.

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


class _Jobs:
    """Jobs by name. Each thing to do is in it once, whoever needs it."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._models: dict[str, str] = {}  # name by what it was made with
        self._not_done: set[str] = set()

    def add_histories(self, run: _Run) -> None:
        name = run.config.name
        self._jobs.setdefault(name, Job(name, [["src.train_agents", *run.options]], "", 0))

    def model_for(self, config: Config) -> str:
        """The name of the model of a run: its own, or that of a run before it which trains the same."""
        unlike = {*_OF_PLAYING, *(() if config.trainer.evaluate else ("policy",))}
        made_with = {key: value for key, value in recorded(config).items() if key not in unlike}
        return self._models.setdefault(_hash(made_with), config.name)

    def add_models(self, run: _Run, programs: Iterable[str]) -> None:
        """`run` is that of the model. A program that waits for another must come after it."""
        config = run.config
        job = self._jobs.get(config.run, Job(config.run, [], config.histories[0], 0))
        for program in programs:
            if program not in (command[0] for command in job.commands):
                job.commands.append([program, *run.options])
                job = job._replace(updates=job.updates + config.trainer.num_iterations)
        self._jobs[config.run] = job

    def add_evaluation(self, run: _Run, folder: Path) -> None:
        """Raises `ConfigError` where `folder` has results of a run with other options."""
        job = self._jobs[run.config.run]
        job.commands.append(["src.evaluate", *run.options])
        if (folder / "results.json").exists():
            compared = [group for program in trained_for(run.config.policy).values() for group in _OF_PROGRAM[program]]
            check_same(run.config, read_results(folder)[0]["config"], (*_OF_ALL, *compared), str(folder))
        else:
            self._not_done |= {job.name, job.needs}

    def missing(self) -> list[Job]:
        """Those without which a result is missing, histories first: they are short and many wait for them."""
        return sorted(
            (job for job in self._jobs.values() if job.name in self._not_done), key=lambda job: job.needs != ""
        )


def trained_for(policy: PolicyConfig) -> dict[str, str]:
    """What must be there for `policy` to play: folders of a run and the programs that fill them, first things first."""
    parts = {"gpt": "src.train_gpt"} if policy.model == "gpt" else {}
    if policy.model != "gpt" or policy.advantage_scale:
        parts["ilql"] = "src.train_ilql"
    if policy.model not in ("gpt", "critic"):
        parts[policy.model] = "src.extract_policy"
    return parts


def _rows_of(study: Config, options: Sequence[str], variant: _Variant, jobs: _Jobs) -> list[Row]:
    """The rows of a variant; what is to be done for them goes to `jobs`."""
    ours = [*options, *variant.options]
    composed = load_config(ours)
    trained: dict[str, _Run] = {}  # those of the models, by the name of the run
    for seed in study.study.seeds:
        source = {group: recorded(composed)[group] for group in _OF_HISTORIES} | {"seed": seed}
        histories = f"{study.name}-histories-{_hash(source)}-seed{seed}"
        jobs.add_histories(_run(composed, ours, seed, histories, histories, histories))
        name = f"{study.name}-{variant.slug}-seed{seed}"
        model = jobs.model_for(_run(composed, ours, seed, name, histories, name).config)
        trained[name] = _run(composed, ours, seed, model, histories, model)
    rows: list[Row] = []
    for test, changes in variant.tests.items():
        there = load_config([*ours, *changes]) if changes else composed
        parts = trained_for(there.policy)
        suffix = suffix_of(_changes(there, composed) | suffixes_of(there.policy), there.evaluation.tasks)
        folders: list[Path] = []
        played: list[Config] = []
        for name, (model, _) in trained.items():
            run = _run(there, [*ours, *changes], model.seed, name, model.histories[0], model.name)
            played.append(run.config)
            folders.append(run.config.folder("logs") / f"evaluation{suffix}")
            jobs.add_models(trained[name], parts.values())
            jobs.add_evaluation(run, folders[-1])
        models = [[config.run_folder / part for part in parts] for config in played]
        x, line = (_number(test), variant.label) if test else (variant.x, variant.line)
        rows.append(Row(variant.label, test, x, line, played[0], folders, models))
    return rows


def _run(composed: Config, options: Sequence[str], seed: int, name: str, histories: str, model: str) -> _Run:
    """A run with what the study sets of each."""
    updates = max(1, round(composed.trainer.num_iterations * composed.study.scale))
    set_here = {"seed": seed, "name": name, "run": model, "num_threads": 1}
    config = replace(
        composed, **set_here, histories=[histories], trainer=replace(composed.trainer, num_iterations=updates)
    )
    texts = [f"{key}={value}" for key, value in set_here.items()]
    return _Run(config, [*options, *texts, f"histories={histories}", f"trainer.num_iterations={updates}"])


def _changes(there: Config, trained: Config) -> dict[str, Any]:
    """How the world of an evaluation differs from that of the training. Raises `PipelineError` where there are not the
    tasks that are asked for, or the model cannot be played in it."""
    with closing(make_env(trained.env)) as env:
        spec, all_tasks, split = env.spec, env.all_tasks(), split_tasks(env, trained)
    development_of(split.train, trained.data.num_development_tasks)
    changes = changes_of(there, recorded(trained))
    if changes:
        with closing(make_env(there.env)) as env:
            readable_spec(there, env.spec, spec._asdict())
            new_tasks(there, env, recorded(trained), split._asdict() | {"all": all_tasks.tolist()})
    return changes


def _variant(written: dict[str, Any]) -> _Variant:
    label, x, tests = (written.get(key) for key in ("label", "x", "test"))
    where = f"study.variants, {label or written}"
    if unknown := set(written) - _KEYS:
        raise ConfigError(f"{where}: {', '.join(sorted(unknown))} is unknown; it has {', '.join(sorted(_KEYS))}")
    if not (isinstance(label, str) and (slug := _slug(label))):
        raise ConfigError(f"{where}: `label` must be a text with letters or digits")
    if not (x is None or (isinstance(x, (int, float, str)) and not isinstance(x, bool))):
        raise ConfigError(f"{where}: x={x} must be a number, or a name")
    x = x if x is None or isinstance(x, str) else float(x)
    line = str(written.get("line", label if isinstance(x, str) else ""))
    options = _texts(written.get("set", []), where)
    if "test" not in written:
        return _Variant(label, slug, options, x, line, {"": []})
    if not (isinstance(tests, dict) and tests):
        raise ConfigError(f"{where}: test={tests} must be worlds, a label and a list of KEY=VALUE each")
    if x is not None or line:
        raise ConfigError(f"{where}: `x` and `line` are for variants without `test`, whose labels are places")
    worlds = {str(test): _texts(changes, where) for test, changes in tests.items()}
    return _Variant(label, slug, options, None, "", worlds)


def _texts(options: Any, where: str) -> list[str]:
    if not (isinstance(options, list) and all(isinstance(text, str) for text in options)):
        raise ConfigError(f"{where}: {options} must be a list of KEY=VALUE")
    _check_not_reserved(options, (*_OF_STUDY, "name", "root", "study"))
    return options


def _check_variants(config: Config, variants: Sequence[_Variant]) -> None:
    slugs, seeds = [variant.slug for variant in variants], config.study.seeds
    if not slugs:
        raise ConfigError("study.variants=[]: there is nothing to compare; study=NAME chooses, --help lists the names")
    if twice := {variant.label for variant in variants if slugs.count(variant.slug) > 1}:
        raise ConfigError(f"study.variants: {', '.join(sorted(twice))}: labels must differ in letters or digits")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"study.seeds={seeds}: must be one seed, or several that differ")


def _check_not_reserved(options: Sequence[str], reserved: Sequence[str]) -> None:
    for option in options:
        key = option.partition("=")[0].lstrip("+~")
        if key in reserved or key.partition(".")[0] in {"study"} & set(reserved):
            raise ConfigError(f"{option}: a study sets this for all of its runs; study.seeds and name= are its own")


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _hash(value: Any) -> str:
    return digest(value)[:8]
