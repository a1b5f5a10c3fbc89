"""Plan of a study: its runs, composed and checked before any work, and the jobs that make them.

Every variant is trained with every seed, on every split of the tasks if there are several. Runs with the same world,
tasks, source and seed share their histories. Runs that differ only in how they are evaluated share everything that is
trained.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.config.options import refuse, replace
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import make_env
from icrl.envs.tasks import development_of, split_tasks
from icrl.evaluation.kinds import policy_kind, policy_suffixes
from icrl.evaluation.report import read_results
from icrl.evaluation.trained import changes_of, suffix_of
from icrl.extensions.other_worlds.reading import in_other_world
from icrl.extensions.scaling.ranks import JoinedRanks
from icrl.extensions.scaling.units import Job
from icrl.extensions.studies.options import StudiedConfig
from icrl.extensions.studies.variants import (
    OF_RUNS,
    OF_STUDY,
    Variant,
    check_not_reserved,
    group_of,
    groups,
    read_variant,
    slug_of,
    typed,
)
from icrl.nn.gpt_policy import PolicyConfig
from icrl.runs import SHARED, checkpoint
from icrl.runs.files import check_same, digest, read_json
from icrl.training.policy_gradient import FinetuneConfig

_PROGRAMS = extensions.programs()
# Of all runs, unless the study asks for more.
QUIET = ("source.videos_per_task=0", "trainer.evaluate=false", "evaluation.videos=false")
_ALONE = ("study", "launch")  # groups of the study, which its runs do not have
_OF_HISTORIES = ("seed", "env", "tasks", "source", "evals")
_OF_EVALUATION = ("name", "run", "evaluation")
_OF_MODEL = ("data", "model", "optimizer", "trainer", "device")  # of whichever program trains it
_OF_ALL = ("seed", "env", "tasks", "source", "data", "model", "optimizer", "trainer", "device", "policy", "evaluation")
_OF_PROGRAM = {"train_gpt": ("objective",), "finetune": ("objective", "finetune"), "train_td3_bc": ("objective",)}


class Row(NamedTuple):
    """A variant in one of the worlds of its evaluations."""

    variant: str
    test: str  # the world; empty: the training world
    x: float | str | None  # place on the axis
    line: str  # through such places
    config: Config  # with the first split and seed
    folders: list[Path]  # of results, one for each split and seed
    models: list[list[Path]]  # everything trained for it, for each split and seed
    published: Sequence[dict[str, Any]] = ()  # see `Published`


class Plan(NamedTuple):
    """Study with its results and the work that is left."""

    config: StudiedConfig
    rows: list[Row]
    jobs: list[Job]  # a needed job comes before those that need it


class _Run(NamedTuple):
    config: Config
    options: list[str]  # which give the config


def plan(options: Sequence[str]) -> Plan:
    """Plan the study of the command line `options`.

    Raises `ConfigError` for a variant that cannot be run, and for results that were made with other options."""
    check_not_reserved(options, OF_STUDY)
    of_study = groups(StudiedConfig)
    own = [option for option in options if group_of(option) in of_study]
    shared = compose_config(StudiedConfig, [*QUIET, *own]).study.options
    check_not_reserved(shared, (*OF_STUDY, *OF_RUNS))
    own = [*QUIET, *(one for one in shared if group_of(one) in of_study), *own]
    config = compose_config(StudiedConfig, own)
    variants = [read_variant(written) for written in _looked_up(config.study.variants, own)]
    slugs, seeds = [variant.slug for variant in variants], config.study.seeds
    refuse(not slugs, "study.variants=[]: must have a variant; study=NAME chooses a study, --help lists the names")
    twice = {variant.label for variant in variants if slugs.count(variant.slug) > 1}
    refuse(twice, f"study.variants: {', '.join(sorted(twice))}: labels must differ in letters or digits")
    refuse(not seeds or len({*seeds}) < len(seeds), f"study.seeds={seeds}: must be one seed, or several different ones")
    splits = config.study.splits
    refuse(len({*splits}) < len(splits), f"study.splits={splits}: must differ")
    given = [option for option in options if group_of(option) not in _ALONE]
    planner, rows = _Planner(config, [typed("name", config.name), *QUIET, *shared, *given]), list[Row]()
    for variant in variants:
        try:
            rows += planner.rows_of(variant)
        except PipelineError as error:
            raise ConfigError(f"study.variants, {variant.label}: {error}") from error
    same = "study.variants: all must have a number as `x` (or as labels of `test`), all a name, or none"
    refuse(len({type(row.x) for row in rows}) > 1, same)
    return Plan(config, rows, planner.missing())


def _looked_up(variants: Sequence[dict[str, Any] | str], options: Sequence[str]) -> list[dict[str, Any]]:
    """The `variants` of a study with the `options`, with those of its preset in the place of their labels."""
    if all(isinstance(one, dict) for one in variants):
        return [one for one in variants if isinstance(one, dict)]
    preset = [option for option in options if option.partition("=")[0] != "study.variants"]
    written = [one for one in compose_config(StudiedConfig, preset).study.variants if isinstance(one, dict)]
    known = {str(one.get("label")): one for one in written}
    unknown = [one for one in variants if isinstance(one, str) and one not in known]
    allowed = f"must be one of {', '.join(map(repr, known))}" if known else "needs a preset, study=NAME, that has it"
    refuse(unknown, f"study.variants={unknown}: each {allowed}")
    return [known[one] if isinstance(one, str) else one for one in variants]


class _Planner:
    """Jobs by name; each thing to do is in them once, however many rows need it."""

    def __init__(self, study: StudiedConfig, options: Sequence[str]) -> None:
        self._study, self._options = study, options
        self._composed = cache(_composed)  # all seeds of a variant have the same options
        self._jobs: dict[str, Job] = {}
        self._models: dict[str, str] = {}  # run with the model, by digest of the options of its training

    def missing(self) -> list[Job]:
        """Jobs of which a result is missing, histories first: they are short, and many jobs wait for them."""
        needed = {name for job in self._jobs.values() if not job.done for name in (job.name, job.needs)}
        return sorted((job for job in self._jobs.values() if job.name in needed), key=lambda job: bool(job.needs))

    def rows_of(self, variant: Variant) -> Iterator[Row]:
        """Rows of a variant; the work for them is added to the jobs."""
        name, study = f"{self._study.name}-{variant.slug}", self._study.study
        shared = (*self._options, *variant.set)
        options = {f"{name}-split{split}": (*shared, f"tasks.seed={split}") for split in study.splits}
        options = options or {name: shared}
        draws = [(f"{name}-seed{seed}", seed, given) for name, given in options.items() for seed in study.seeds]
        runs = [self._trained(self._composed(given), given, seed, name) for name, seed, given in draws]
        first, composed = draws[0][2], self._composed(draws[0][2])
        suffixes, programs = set[str](), ["train_agents"]
        for test, changes in variant.test.items():
            there = self._composed((*first, *changes))
            where, own = f"test, {test}: the model", "a variant of its own"
            check_same(there, composed.model_dump(), _OF_MODEL, where, other=own)
            parts = trained_for(there.policy, there.finetune)
            programs += parts.values()
            suffix = suffix_of(_changes(there, composed) | policy_suffixes(there), there.evaluation.tasks)
            # What differs in no suffix, such as a temperature, is evaluated under a name of its own.
            more = f"-{slug_of(str(test))}" if suffix in suffixes else ""
            suffixes.add(suffix)
            evaluated: list[Config] = []
            for (name, seed, given), run in zip(draws, runs, strict=True):
                world, learned = (*given, *changes), (run.config.histories[0], run.config.run)
                recorded = self._recorded(self._composed(world), world, learned[0])
                played = self._run(recorded, world, seed, name + more, *learned)
                evaluated.append(played.config)
                self._add(run, parts, played, played.config.folder("logs") / f"evaluation{suffix}")
            folders = [config.folder("logs") / f"evaluation{suffix}" for config in evaluated]
            models = [[config.run_folder / part for part in parts] for config in evaluated]
            x, line = variant.x, str(variant.line or (variant.label if isinstance(variant.x, str) else ""))
            if test != "":
                x, line = None, variant.label
                with suppress(ValueError):
                    x = float(str(test))
            episode = max((one.measure for one in variant.published if isinstance(one.measure, int)), default=1)
            most = there.evaluation.num_episodes
            refuse(episode > most, f"published, measure={episode}: must be at most evaluation.num_episodes={most}")
            published = [one.model_dump() for one in variant.published]
            yield Row(variant.label, str(test), x, line, evaluated[0], folders, models, published)
        programs = [*dict.fromkeys(programs), "evaluate"]
        read = {option for program in programs for option in _read_by(program, variant.set)}
        unread = [option for option in variant.set if option not in read]
        refuse(unread, f"{', '.join(unread)}: no program of this variant has it ({', '.join(programs)})")

    def _trained(self, composed: Config, options: Sequence[str], seed: int, name: str) -> _Run:
        """Run of the models for the run `name`: its own, or an earlier one with the same training. Adds the collection
        of its histories."""
        kept = composed.model_dump()
        source = {group: kept[group] for group in _OF_HISTORIES} | {"seed": seed}
        if kept["source"].get("task_change"):  # streams move between the training tasks that `data` leaves
            source |= {"data": kept["data"]}
        histories = f"{self._study.name}-histories-{digest(source)[:8]}-seed{seed}"
        composed = self._recorded(composed, options, histories)
        collected = self._run(composed, options, seed, histories, histories, histories)
        command = ["train_agents", *_read_by("train_agents", collected.options)]
        self._jobs.setdefault(histories, Job(histories, [command], "", 0))
        ignored = {*_OF_EVALUATION, *(() if composed.trainer.evaluate else ("policy",))}
        made_with = {key: value for key, value in collected.config.model_dump().items() if key not in ignored}
        model = self._models.setdefault(digest(made_with), name)
        return self._run(composed, options, seed, model, histories, model)

    def _recorded(self, composed: Config, options: Sequence[str], histories: str) -> Config:
        """`composed` with the source as `histories` record it: its teacher may follow from the name of their run."""
        named = any(composed.name in str(value) for _, value in composed.source)
        return self._composed((*options, typed("name", histories))) if named else composed

    def _add(self, run: _Run, parts: dict[str, str], played: _Run, folder: Path) -> None:
        """Add the training of the `parts` of `run`, and the evaluation `played`. Raises `ConfigError` if `folder` has
        its results, made with other options."""
        config = run.config
        job = self._jobs.setdefault(config.run, Job(config.run, [], config.histories[0], 0))
        for program in parts.values():
            if program in SHARED:
                trainer, ranks = config.trainer, JoinedRanks(0, self._study.launch.num_processes)
                ranks.check_divides(trainer.mini_batch_size, trainer.gradient_accumulation_steps)
            if program not in (command[0] for command in job.commands):
                job.commands.append([program, *_read_by(program, run.options)])
                job.updates += config.trainer.num_iterations
        job.commands.append(["evaluate", *_read_by("evaluate", played.options)])
        if (folder / "results.json").exists():
            compared = [group for program in parts.values() for group in _OF_PROGRAM.get(program, ())]
            check_same(played.config, read_results(folder)[0]["config"], (*_OF_ALL, *compared), str(folder))
            for part, program in parts.items():
                _check_extended(run, part, program)
        else:
            job.done = False

    def _run(self, composed: Config, options: Sequence[str], seed: int, name: str, histories: str, model: str) -> _Run:
        """A run with the options that the study sets."""
        set_here = {"seed": seed, "name": name, "run": model, "num_threads": 1}
        texts = [typed(key, str(value)) for key, value in (set_here | {"histories": histories}).items()]
        return _Run(replace(composed, **set_here, histories=[histories]), [*options, *texts])


def trained_for(policy: PolicyConfig, finetune: FinetuneConfig) -> dict[str, str]:
    """Parts to train before `policy` can act: folders of a run and the programs that fill them, in order."""
    return policy_kind(policy, finetune).parts


def _module_of(program: str) -> Any:
    """Module of a program of an extension; None for one of the core."""
    module = _PROGRAMS.get(program)
    return import_module(module) if module else None


def _class_of(program: str) -> type[Config]:
    """Class of the options of a program of a run."""
    return getattr(_module_of(program), "OPTIONS", Config)


def _check_extended(run: _Run, part: str, program: str) -> None:
    """Raise `ConfigError` if a model in the folder `part` was made with other options of an extension's groups, which
    the results of an evaluation do not record."""
    own = [group for group in _class_of(program).model_fields if group not in Config.model_fields]
    own = [group for group in own if group in getattr(_module_of(program), "COMPARED", ())]
    for sidecar in checkpoint.sidecars(run.config.run_folder / part, "last")[-1:] if own else ():
        made_with = read_json(sidecar)["description"]["config"]
        check_same(compose_config(_class_of(program), run.options), made_with, own, str(sidecar.parent))


def _composed(options: Sequence[str]) -> Config:
    """The configuration with `options`, with all groups of the programs of an extension if some are only theirs."""
    kinds = [one for one in map(_class_of, _PROGRAMS) if issubclass(one, Config)]
    beyond = {group_of(option) for option in options} - groups(Config)
    return compose_config(next((one for one in kinds if beyond & groups(one)), Config), options)


def _read_by(program: str, options: Sequence[str]) -> list[str]:
    """Those of the `options` of a run that a program has, which lacks groups of an extension's other programs."""
    more = {*map(group_of, options)} & {
        one for name in _PROGRAMS if issubclass(kind := _class_of(name), Config) for one in groups(kind)
    }
    lacking = more - groups(_class_of(program))
    return [option for option in options if group_of(option) not in lacking]


def _changes(there: Config, trained: Config) -> dict[str, Any]:
    """Differences between the world of an evaluation and that of the training.

    Raises `PipelineError` if a world has too few tasks, or the model cannot act in the world of the evaluation."""
    with closing(make_env(trained.env)) as env:
        spec, all_tasks, split = env.spec, env.all_tasks(), split_tasks(env, trained)
        development_of(env, trained, split.train)
    changes = changes_of(there, trained.model_dump())
    if changes:
        with closing(make_env(there.env)) as env:
            tasks = split._asdict() | {"all": all_tasks.tolist()}
            in_other_world(there, env, {"env": spec.to_json(), "config": trained.model_dump(), "tasks": tasks})
    return changes
