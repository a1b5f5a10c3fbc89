"""Plan of a study: composed and checked before any work, each thing once."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from installed import ABSENT, needs
from refusals import check_refusal, refusals
from results import write_results

from icrl import extensions
from icrl.app.command_line import description
from icrl.app.compose import compose_config, load_config, presets_of
from icrl.config.options import replace, walk
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoomConfig
from icrl.envs.tasks import split_tasks
from icrl.extensions.scaling.units import Job
from icrl.extensions.studies.plan import Plan, Row, plan, trained_for
from icrl.nn.gpt_policy import PolicyConfig
from icrl.training.policy_gradient import FinetuneConfig

PRESETS = sorted(name for name in presets_of("study") if name != "none")
ONE_SEED = ("study.seeds=[0]",)
QUIET = ("trainer.evaluate=false", "evaluation.checkpoint=last", *ONE_SEED)
SMALL = ("experiment=tiny", "name=mine", "trainer.num_iterations=10")


def study(*variants: str, options: tuple[str, ...] = (), root: Path = Path("/tmp/none")) -> Plan:
    return plan([*SMALL, f"root={root}", f"study.variants=[{', '.join(variants)}]", *options])


def variant(label: str, *options: str, more: str = "") -> str:
    quoted = ", ".join(f"'{option}'" for option in options)
    return f"{{label: {label}, set: [{quoted}]{more}}}"


def modules(job: Job) -> list[str]:
    return [command[0] for command in job.commands]


def value(command: list[str], key: str) -> str:
    """What the last of the options that set `key` says."""
    return [option.partition("=")[2] for option in command if option.startswith(f"{key}=")][-1]


@cache
def preset_plan(preset: str) -> Plan:
    return plan([f"study={preset}", "root=/tmp/none"])


def refusal(*variants: str, options: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as refused:
        study(*variants, options=options)
    return str(refused.value)


def test_every_variant_is_trained_and_evaluated_with_every_seed() -> None:
    _, rows, jobs = study(variant("a"), variant("B c", "model.context_len=20"), options=("study.seeds=[3, 5]",))
    assert [(row.variant, row.test, row.x, row.line) for row in rows] == [("a", "", None, ""), ("B c", "", None, "")]
    models = [job for job in jobs if job.needs]
    assert [job.name for job in models] == ["mine-a-seed3", "mine-a-seed5", "mine-b-c-seed3", "mine-b-c-seed5"]
    for job, seed in zip(models, (3, 5, 3, 5), strict=True):
        assert modules(job) == ["train_gpt", "evaluate"] and job.updates == 10
        for command in job.commands:
            config = load_config(command[1:])
            assert (config.seed, config.name, config.run, config.num_threads) == (seed, job.name, job.name, 1)
            assert config.histories == [job.needs]
            assert config.model.context_len == (20 if "b-c" in job.name else 40)
    assert rows[1].folders == [Path(f"/tmp/none/logs/mine-b-c-seed{seed}/evaluation") for seed in (3, 5)]
    assert rows[1].models == [[Path(f"/tmp/none/logs/mine-b-c-seed{seed}/gpt")] for seed in (3, 5)]


def test_histories_come_first_and_are_shared_where_world_tasks_source_and_seed_are_the_same() -> None:
    different = ("env.size=6", "tasks.num_train=12", "source.learning_rate=0.1", "tasks.seed=7")
    variants = [variant("a"), variant("b", "model.context_len=20", "data.keep_every=2")]
    variants += [variant(f"v{index}", option) for index, option in enumerate(different)]
    _, _, jobs = study(*variants, options=("study.seeds=[0, 1]",))
    histories = [job for job in jobs if not job.needs]
    assert jobs[: len(histories)] == histories and len(histories) == 2 * (1 + len(different))
    needs = {job.name: job.needs for job in jobs}
    assert needs["mine-a-seed0"] == needs["mine-b-seed0"] != needs["mine-a-seed1"]
    for job in histories:
        (command,) = job.commands
        assert command[0] == "train_agents" and job.updates == 0
        assert load_config(command[1:]).name == job.name and job.name.endswith(f"-seed{value(command, 'seed')}")


def test_histories_of_streams_that_change_tasks_are_those_of_their_development_tasks() -> None:
    for change, number in ((0.0, 1), (0.1, 2)):
        others = variant("b", "data.num_development_tasks=3")
        jobs = study(variant("a"), others, options=(*ONE_SEED, f"source.task_change={change}")).jobs
        assert len([job for job in jobs if not job.needs]) == number


def test_models_are_shared_if_only_the_evaluation_differs() -> None:
    cold, greedy = variant("cold", "policy.temperature=0.5"), variant("greedy", "evaluation.sample_probability=0.0")
    _, rows, jobs = study(variant("warm"), cold, greedy, variant("other", "model.num_layers=1"), options=QUIET)
    shared, other = [job for job in jobs if job.needs]
    assert modules(shared) == ["train_gpt", *["evaluate"] * 3] and modules(other) == modules(shared)[:2]
    evaluated = [(value(command, "name"), value(command, "run")) for command in shared.commands[1:]]
    assert evaluated == [(f"mine-{name}-seed0", "mine-warm-seed0") for name in ("warm", "cold", "greedy")]
    assert [row.folders[0].parent.name for row in rows[:3]] == [name for name, _ in evaluated]
    assert {part.parent.name for row in rows[:3] for part in row.models[0]} == {"mine-warm-seed0"}
    assert value(shared.commands[2], "policy.temperature") == "0.5"
    chosen = (*ONE_SEED, "trainer.evaluate=true")  # checkpoints are chosen by evaluations
    _, _, jobs = study(variant("warm"), cold, options=chosen)
    assert [job.name for job in jobs if job.needs] == ["mine-warm-seed0", "mine-cold-seed0"]


def test_a_variant_may_be_evaluated_in_other_worlds_and_with_another_policy() -> None:
    more = ", test: {5: [], 7: ['env.size=7', 'tasks.num_held_out=8'], greedy: ['policy.temperature=0.5']}"
    with pytest.raises(ConfigError, match="all a name"):
        study(variant("a", more=more), options=QUIET)  # two labels are numbers
    _, rows, jobs = study(variant("a", more=more.replace("greedy", "9")), options=QUIET)
    assert [(row.variant, row.test, row.x, row.line) for row in rows] == [("a", n, float(n), "a") for n in "579"]
    folders = ["mine-a-seed0/evaluation", "mine-a-seed0/evaluation-size=7", "mine-a-seed0-9/evaluation"]
    assert ["/".join(row.folders[0].parts[-2:]) for row in rows] == folders
    assert [[part.name for part in row.models[0]] for row in rows] == [["gpt"], ["gpt"], ["gpt"]]
    (job,) = [job for job in jobs if job.needs]
    assert modules(job) == ["train_gpt", "evaluate", "evaluate", "evaluate"]
    sides = [load_config(command[1:]).env for command in job.commands]
    assert [side.size for side in sides if isinstance(side, DarkRoomConfig)] == [5, 5, 7, 5]
    assert rows[1].config.tasks.num_held_out == 8


def test_places_are_numbers_or_names_of_one_kind() -> None:
    far, near = variant("a", more=", x: far, line: one"), variant("b", more=", x: near")
    number, named = variant("c", more=", x: 0.5"), variant("e", more=", test: {far: []}")
    assert [(row.x, row.line) for row in study(far, near, options=ONE_SEED).rows] == [("far", "one"), ("near", "b")]
    assert [(row.x, row.line) for row in study(number, options=ONE_SEED).rows] == [(0.5, "")]
    assert [(row.x, row.line) for row in study(named, options=ONE_SEED).rows] == [(None, "e")]
    assert "all a name" in refusal(far, number)


@pytest.mark.parametrize(("section", "given", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, given: list[str], named: list[str]) -> None:
    """Of a variant beside a good one, or of an option of the study."""
    variants, options = (given, ()) if section == "variants" else ([], tuple(given))
    check_refusal(lambda _: study(variant("a"), *variants, options=options), given, named)


def test_options_of_the_study_come_before_those_of_the_command_line_and_of_variants() -> None:
    own = "study.options=['model.context_len=20','trainer.num_iterations=5','model.num_layers=1']"
    config, rows, jobs = study(variant("a"), variant("b", "model.num_layers=2"), options=(own, *ONE_SEED))
    for row, num_layers in zip(rows, (1, 2), strict=True):
        found = row.config
        assert (found.model.context_len, found.trainer.num_iterations) == (20, 10)
        assert found.model.num_layers == num_layers
    assert config.model.context_len == 20 and value(jobs[-1].commands[0], "model.context_len") == "20"
    assert not [option for job in jobs for command in job.commands for option in command if "study." in option]
    for wrong in ("seed=1", "name=x", "study.measure=returns", "launch=dask"):
        assert wrong in refusal(variant("a"), options=(f"study.options=['{wrong}']",))


def finish(row: Row, seed: int, index: int) -> None:
    write_results(row.folders[index], replace(row.config, seed=seed).model_dump())


@needs("induction")
def test_variants_of_a_preset_are_chosen_by_their_labels() -> None:
    """A chosen one has the row and the runs that it has among all."""
    everything, label, slug = preset_plan("tokens"), "three tokens per step", "three-tokens-per-step"
    options = ("study=tokens", "root=/tmp/none")
    _, rows, jobs = plan([*options, f"study.variants=['{label}', {variant('narrow', 'model.embed_dim=32')}]"])
    assert [row.variant for row in rows] == [label, "narrow"]
    assert rows[0] == next(row for row in everything.rows if row.variant == label)
    chosen, all_of_it = ([job for job in among if slug in job.name] for among in (jobs, everything.jobs))
    assert chosen == all_of_it and len(chosen) == 3
    with pytest.raises(ConfigError, match=r"study.variants=\['two'\].*'three tokens per step'"):
        plan([*options, "study.variants=[two]"])


def test_finished_work_is_not_repeated_and_must_be_the_same(tmp_path: Path) -> None:
    variants, options = (variant("a"), variant("b", "model.num_layers=1")), ("study.seeds=[0, 1]",)
    _, rows, jobs = study(*variants, options=options, root=tmp_path)
    assert len(jobs) == 6
    for row in rows:
        finish(row, 0, 0)
    left = study(*variants, options=options, root=tmp_path).jobs
    assert [job.name for job in left if job.needs] == ["mine-a-seed1", "mine-b-seed1"]
    assert [job.name for job in left if not job.needs] == [left[-1].needs], "histories that nothing needs any more"
    for row in rows:
        finish(row, 1, 1)
    for not_theirs in ("launch.num_workers=1", "finetune.discount=0.3"):
        assert study(*variants, options=(*options, not_theirs), root=tmp_path).jobs == []
    own = ("trainer.num_iterations=11", "evaluation.num_streams=3", "policy.temperature=0.5", "device.dtype=float64")
    for other in (*own, "objective.discount=0.1"):
        with pytest.raises(ConfigError, match=f"study.variants, a: .*{re.escape(other.partition('=')[0])}"):
            study(*variants, options=(*options, other), root=tmp_path)


@needs("experts")
@needs("vectors")
def test_the_source_of_a_row_is_that_of_its_histories_whose_teacher_has_their_name() -> None:
    _, rows, jobs = plan(
        ["name=mine", "env=pendulum", "experiment=expert", *ONE_SEED, f"study.variants=[{variant('a')}]"]
    )
    (command,) = jobs[0].commands
    teacher = load_config(command[1:]).source.teacher
    assert teacher == f"{jobs[0].name}-expert" == rows[0].config.source.teacher


SLOW = {"world_trials", "minigrid_trials", "minigrid", "literature"}  # worlds with thousands of tasks, many variants


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in PRESETS]
)
def test_every_preset_can_be_run(preset: str) -> None:
    """The plan checks all its runs; the command line of a run gives the configuration of the row."""
    packages = {"locomotion": "mujoco", "meta_world": "metaworld"}
    packages |= dict.fromkeys(("minigrid", "minigrid_trials"), "minigrid")
    if package := packages.get(preset):
        pytest.importorskip(package)
    try:
        config, rows, jobs = preset_plan(preset)
    except ConfigError as error:
        if not ABSENT or "an extension" not in str(error):
            raise
        pytest.skip(str(error))
    assert config.name == f"study-{preset}" and description(presets_of("study")[preset])
    evaluations = [command for job in jobs for command in job.commands if command[0] == "evaluate"]
    worlds = ("env.size=", "env.opponents=", "env.num_arms=", "env.permute_actions=")
    runs = {(value(one, "name"), tuple(option for option in one if option.startswith(worlds))) for one in evaluations}
    assert len(runs) == len(rows) * len(config.study.seeds) * max(1, len(config.study.splits))
    told = {key: value for key, value, _ in walk(load_config(evaluations[0][1:]))}
    differ = {key for key, value, _ in walk(rows[0].config) if told[key] != value}
    assert differ <= {"source.teacher"}  # named after its histories
    for one in (row.config for row in rows):
        assert not one.trainer.evaluate and not one.evaluation.videos and not one.source.videos_per_task
    chooses = preset in {"decoding", "objective", "offline_settings", "pace", "position", "tokens"}
    shown = {"development"} if chooses else {"test"}  # a recipe is chosen without a look at the test
    assert {row.config.evaluation.tasks for row in rows} == shown
    assert {folder.name.startswith("evaluation-development") for row in rows for folder in row.folders} == {chooses}


def test_models_of_fewer_and_of_more_tasks_have_the_same_held_out_ones() -> None:
    _, rows, _ = preset_plan("tasks")
    splits = [split_tasks(make_env(row.config.env), row.config) for row in rows]
    assert len({tuple(split.held_out) for split in splits}) == 1 and len(splits[0].held_out) == 10
    assert [len(split.train) for split in splits] == [row.x for row in rows]


# ---- studies of offline RL: what is trained for a policy, and what its variants share

offline = pytest.mark.skipif("offline_rl" not in extensions.NAMES, reason="the programs are an extension")
CRITICS = import_module(extensions.programs().get("train_ilql", "icrl.programs.train_gpt"))

GUIDED = variant("guided", "policy.advantage_scale=2.5")
EXTRACTED = variant("extracted", "policy.model=awr")
CRITIC = variant("critic", "policy.model=critic", "policy.advantage_scale=1")


@offline
def test_policies_share_everything_that_is_trained() -> None:
    _, rows, jobs = study(variant("plain"), GUIDED, EXTRACTED, CRITIC, options=QUIET)
    (job,) = [job for job in jobs if job.needs]
    assert job.name == "mine-plain-seed0" and job.updates == 3 * 10
    assert [(command[0], value(command, "name").split("-")[1]) for command in job.commands] == [
        *(("train_gpt", "plain"), ("evaluate", "plain"), ("train_ilql", "plain"), ("evaluate", "guided")),
        *(("extract_policy", "plain"), ("evaluate", "extracted"), ("evaluate", "critic")),
    ]
    assert {value(command, "run") for command in job.commands} == {"mine-plain-seed0"}
    logs = Path("/tmp/none/logs")
    suffixes = ["", "-advantage=2.5", "-policy=awr", "-policy=critic-advantage=1.0"]
    for row, suffix in zip(rows, suffixes, strict=True):
        assert row.folders == [logs / f"mine-{row.variant}-seed0" / f"evaluation{suffix}"]
    own, tuned = PolicyConfig(model="finetuned", advantage_scale=0.5), FinetuneConfig()
    assert [*trained_for(own, tuned).values()] == ["train_gpt", "finetune", "train_ilql"]
    parts = [["gpt"], ["gpt", "ilql"], ["ilql", "awr"], ["ilql"]]
    assert [row.models for row in rows] == [[[logs / job.name / part for part in needed]] for needed in parts]


@offline
def test_a_critic_of_another_kind_has_a_run_of_its_own_and_no_model() -> None:
    other = variant("other", "critic=iql", "policy.model=awr")
    _, rows, jobs = study(EXTRACTED, variant("plain"), other, options=QUIET)
    shared, own = [job for job in jobs if job.needs]
    trained = ["train_ilql", "extract_policy", "evaluate"]
    assert modules(shared) == [*trained, "train_gpt", "evaluate"] and shared.updates == 30
    assert modules(own) == trained and own.updates == 20 and own.needs == shared.needs
    assert {part.parent.name for part in rows[2].models[0]} == {"mine-other-seed0"}
    assert all(compose_config(CRITICS.OPTIONS, command[1:]).critic.separate_value for command in own.commands[:2])
    assert not any(option.startswith("critic") for option in own.commands[2]), "an evaluation has no such option"
    load_config(own.commands[2][1:])


@pytest.mark.parametrize("name", ["a=b", "it's, (1) é", 'a "b"', r"a\b\'c", "ends with \\"])
def test_a_study_may_have_any_name_that_a_folder_may_have(name: str) -> None:
    escaped = re.sub(r"(\\+)(?='|\Z)", r"\1\1", name).replace("'", r"\'")
    _, rows, jobs = plan([*SMALL, "root=/tmp/none", *ONE_SEED, "study.variants=[{label: a}]", f"name='{escaped}'"])
    assert [job.name for job in jobs] == [rows[0].config.histories[0], f"{name}-a-seed0"]
    for job in jobs:
        for command in job.commands:
            config = load_config(command[1:])
            assert (config.name, config.run, config.histories) == (job.name, job.name, [jobs[0].name])
