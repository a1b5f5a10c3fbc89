"""Options: every mistake is an error that names the field, before any work; every option is explained."""

import dataclasses
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icrl.config.world_conflicts import READS_POINTS
from omegaconf import OmegaConf

from icrl.config.command_line import GROUPS
from icrl.config.compose import CONF, load_config
from icrl.config.env_schema import ENVS
from icrl.config.options import walk
from icrl.config.root import Config
from icrl.config.training_schema import OPTIMIZERS, SOURCES
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.runs.device import recorded
from icrl.runs.identity import check_same

DEFAULT = load_config()


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides)
    assert isinstance(refused.value, PipelineError)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def value_of(config: Config, key: str) -> object:
    return next(value for name, value, _ in walk(config) if name == key)


def changed(*overrides: str) -> Config:
    """The default configuration with some options set, unchecked."""
    schema = OmegaConf.structured(Config)
    schema.source = OmegaConf.structured(type(DEFAULT.source))
    schema.env = OmegaConf.structured(type(DEFAULT.env))
    config = OmegaConf.merge(schema, recorded(DEFAULT), OmegaConf.from_dotlist(list(overrides)))
    return OmegaConf.to_object(config)


@pytest.mark.parametrize(
    "override",
    ["sead=1", "optimizer.learning_rat={kind: constant}", "env.sise=7", "+sead=1", "+env.sise=7", "optimiser=adam"],
)
def test_an_unknown_key_is_refused_by_name(override: str) -> None:
    message = refusal(override)
    assert override.strip("+").split("=")[0].rpartition(".")[2] in message
    assert "append" not in message


@pytest.mark.parametrize(("override", "preset"), [("env=nope", "nope"), ("model=3", "int"), ("source=null", "None")])
def test_an_unknown_preset_is_refused(override: str, preset: str) -> None:
    assert preset in refusal(override)


def test_a_missing_key_is_refused_by_name() -> None:
    assert refusal("~source.discount") == "no value for source.discount"
    assert refusal("env.max_episode_steps=???") == "no value for env.max_episode_steps"
    assert refusal("~seed", "~root") == "no value for root, seed"
    assert refusal("~histories") == refusal("histories=???") == "no value for histories"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "1.5"),
        ("seed", "true"),
        ("seed", "many"),
        ("seed", "null"),
        ("seed", "[1]"),
        ("name", "null"),
        ("env.random_start", "3"),
        ("env.random_start", "1.0"),
        ("env.random_start", "maybe"),
        *(("env.size", value) for value in ("[1]", "''", "1e400", "{a: 1}")),
        ("source.learning_rate", "fast"),
        ("source.learning_rate", "false"),
        ("source.learning_rate", "{a: 1}"),
        ("histories", "null"),
        ("histories", "{a: 1}"),
        ("histories", "[{a: 1}]"),
        ("histories", "[[a]]"),
        ("data.weights", "0.5"),
        ("data.weights", "null"),
        ("data.weights", "[half, half]"),
    ],
)
def test_a_wrong_type_is_refused_by_name(key: str, value: str) -> None:
    assert refusal(f"{key}={value}").startswith(key)


@pytest.mark.parametrize("value", ["[[1]]", "[{a: 1}]", "[[]]"])
def test_what_is_in_a_list_of_numbers_is_a_number(value: str) -> None:
    lists = [key for key, _, field in walk(load_config()) if field.type in (list[int], list[float])]
    assert len(lists) >= 4
    for key in lists:
        assert refusal(f"{key}={value}").startswith(f"{key}="), key


@pytest.mark.parametrize("override", ["hydra.verbose=true", "+hydra.run.dir=x", "=3"])
def test_what_hydra_would_not_mind_is_refused(override: str) -> None:
    assert refusal(override) == f"{override}: There is no such option; --help lists all"


def test_several_experiments_in_one_are_refused() -> None:
    assert refusal("experiment=[tiny,searcher]") == "experiment=[tiny,searcher]: must be one name"


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("env.size", "1", "int >= 2 and <= 64"),  # low
        ("env.size", "65", "int >= 2 and <= 64"),  # high
        ("source.adam_eps", "0", "float > 0"),  # above
        ("source.adam_eps", "nan", "float > 0"),
        ("source.adam_eps", "inf", "float > 0"),
        ("source.learning_rate", "-0.5", "float, or a schedule of such values, >= 0"),
        ("summaries.code_snapshots", "['']", "a list of paths"),
        ("data.min_final_success", "nan", "float >= 0 and <= 1"),
        ("data.min_final_success", "-0.1", "float >= 0 and <= 1"),
        ("device.dtype", "float16", "one of float32, float64"),  # choices
        ("model.tokens", "words", "one of transition, interleaved, cross"),
        ("seed", str(10**30), "int >= 0 and <= 1000000000"),
        ("name", "a/b", "a name without '/' or a leading dot"),
        ("name", "..", "a name without '/' or a leading dot"),
        ("name", "", "a name without '/' or a leading dot"),
        ("histories", "['mine', 'a/b']", "a name without '/' or a leading dot, or a list of such"),
        ("histories", "['']", "a name without '/' or a leading dot, or a list of such"),
        ("histories", "['.hidden', 'mine']", "a name without '/' or a leading dot, or a list of such"),
        ("data.weights", "[0.5, 0.0]", "a list of floats > 0"),
        ("data.weights", "[inf]", "a list of floats > 0"),
        ("data.weights", "[-1.0, 1.0]", "a list of floats > 0"),
        ("study.seeds", "[0, -1]", "a list of ints >= 0 and <= 1000000000"),
        ("study.seeds", "[[1]]", "a list of ints >= 0 and <= 1000000000"),
        ("data.weights", "[[]]", "a list of floats > 0"),
        ("data.weights", "0.5", "a list of floats > 0"),
        ("study.question", "", "a text"),
        ("study.variants", "[1]", "a list of mappings"),
    ],
)
def test_out_of_range_is_refused_with_field_value_and_what_is_allowed(key: str, value: str, limit: str) -> None:
    shown = {"0": "0.0"}.get(value, value)
    assert refusal(f"{key}={value}") == f"{key}={shown}: must be {limit}"


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("env.tasks", "[1]", "a list of mappings"),
        ("env.tasks", "[{a: 1}, null]", "a list of mappings"),
        ("env.tasks", "[{1: 2}]", "a list of mappings"),
        ("env.tasks", "{a: 1}", "a list of mappings"),
        ("env.reward_values", "[0, nan]", "a list of floats"),
        ("env.reward_values", "{a: 1}", "a list of floats"),
        ("env.reward_values", "[0, low]", "Float"),
        ("env.reward_values", "0", "list"),
        ("env.id", "''", "an id of Gymnasium"),
        ("summaries.code_snapshots", "{a: 1}", "a list of paths"),
    ],
)
def test_lists_hold_what_they_are_declared_to(key: str, value: str, kind: str) -> None:
    message = refusal("env=gymnasium", f"{key}={value}")
    assert message.startswith(key) and kind in message


def test_a_list_of_mappings_is_kept_as_it_is_written() -> None:
    tasks = "[{desc: [SF, FG], is_slippery: true}, {}]"
    config = load_config(["env=gymnasium", f"env.tasks={tasks}", "env.reward_values=[-1, 0.5]", "env.id=m:A/B-v0"])
    assert value_of(config, "env.tasks") == [{"desc": ["SF", "FG"], "is_slippery": True}, {}]
    assert value_of(config, "env.reward_values") == [-1.0, 0.5] and value_of(config, "env.id") == "m:A/B-v0"
    check_same(config, json.loads(json.dumps(recorded(config))), ["env"], "logs/here")


@pytest.mark.parametrize(("key", "value"), [("env.size", 2), ("env.size", 64), ("data.min_final_success", 1.0)])
def test_limits_themselves_are_allowed(key: str, value: float) -> None:
    more = ["model.max_size=64", "search.goal_row=1", "search.goal_column=1"]
    more += ["data.num_development_tasks=0", "trainer.evaluate=false"]
    assert value_of(load_config([f"{key}={value}", *more]), key) == value


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["seed", "env", "name", "env.size", "x"]), st.text(max_size=12))
def test_whatever_is_typed_ends_in_a_configuration_or_an_explanation(key: str, text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(load_config([f"{key}={text}"]), Config)


def test_check_same_names_the_field_and_both_values() -> None:
    before = recorded(DEFAULT)
    check_same(DEFAULT, before, ["seed", "env", "source"], "logs/here")
    for key, new in (("env.size", 7), ("seed", 3), ("source.learning_rate", 0.25)):
        old = value_of(DEFAULT, key)
        with pytest.raises(ConfigError) as refused:
            check_same(changed(f"{key}={new}"), before, ["seed", "env", "source"], "logs/here")
        message = str(refused.value)
        assert message.startswith(f"logs/here was made with {key}={old}, and this configuration says {new}")
        assert f"give {key}={old} here too, or another name=" in message


def test_check_same_compares_nothing_else() -> None:
    """Not other sections, and not options that do not touch what is computed."""
    other = changed("env.size=7", "seed=3", "checkpoints.keep_last=10", "source.videos_per_task=0")
    check_same(other, recorded(DEFAULT), ["source", "checkpoints"], "logs/here")


def test_check_same_refuses_what_was_recorded_without_an_option() -> None:
    before = recorded(DEFAULT)
    del before["env"]["size"]
    with pytest.raises(ConfigError, match=r"env\.size=None.* says \d"):
        check_same(DEFAULT, before, ["env"], "logs/here")
    before["device"] = "cpu"  # what is a group now was a single option once
    with pytest.raises(ConfigError, match=r"device\.dtype=None.* says float32"):
        check_same(DEFAULT, before, ["device"], "logs/here")


def test_a_run_may_go_on_elsewhere_but_not_in_another_precision() -> None:
    check_same(changed("device.type=cuda"), recorded(changed("device.type=cpu")), ["device"], "logs/here")
    for key, value in (("device.dtype", "float64"), ("device.amp_dtype", "bfloat16")):
        with pytest.raises(ConfigError, match=f"{key}=.* says {value}"):
            check_same(changed(f"{key}={value}"), recorded(DEFAULT), ["device"], "logs/here")


def test_what_is_recorded_survives_json_to_the_bit() -> None:
    check_same(DEFAULT, json.loads(json.dumps(recorded(DEFAULT))), recorded(DEFAULT), "logs/here")


def sections() -> dict[str, type]:
    return {
        field.name: field.type
        for field in dataclasses.fields(Config)
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type)
    }


SCHEDULE = "{kind: linear, progress: percent, points: [[0, 0.5], [1, 0]]}"


def test_a_rate_may_be_a_schedule_which_replaces_the_one_before_as_a_whole() -> None:
    written = OmegaConf.to_container(OmegaConf.create(SCHEDULE))
    for key in ("optimizer.learning_rate", "source.learning_rate", "source.entropy_coefficient"):
        assert value_of(load_config([f"{key}={SCHEDULE}"]), key) == written
    tuned = load_config(["optimizer.learning_rate.initial=0.5"]).optimizer.learning_rate
    assert tuned == DEFAULT.optimizer.learning_rate | {"initial": 0.5}
    assert load_config(["optimizer.learning_rate=0.5"]).optimizer.learning_rate == 0.5


@pytest.mark.parametrize(
    ("schedule", "parts"),
    [
        (SCHEDULE.replace("linear", "lineer"), ["kind=lineer", "linear"]),
        (SCHEDULE.replace("percent", "hours"), ["progress=hours", "percent"]),
        (SCHEDULE.replace("0.5", "-0.5"), ["-0.5", ">= 0"]),
        ("{kind: linear}", ["progress"]),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_field(schedule: str, parts: list[str]) -> None:
    message = refusal(f"source.learning_rate={schedule}")
    assert message.startswith("source.learning_rate")
    assert all(part in message for part in parts), message


def test_the_name_of_a_source_decides_which_options_it_has() -> None:
    assert "source.name=sarsa: must be one of a2c, ppo, q_learning" in refusal("source.name=sarsa")
    assert "env.name=maze: must be one of dark_room, dark_key_to_door" in refusal("env.name=maze")
    assert "size" in refusal("env=bandit", "env.size=7")
    assert "epsilon" in refusal("source.epsilon=0.5")
    assert value_of(load_config(["source=q_learning", "source.epsilon=0.5"]), "source.epsilon") == 0.5
    assert "hidden_size" in refusal("source=q_learning", "source.hidden_size=8")


def test_no_option_has_its_default_in_python() -> None:
    for kind in (Config, *sections().values(), *SOURCES.values(), *ENVS.values()):
        for field in dataclasses.fields(kind):
            assert field.default is field.default_factory is dataclasses.MISSING, field.name


def names_of(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_preset_writes_out_every_option_of_its_group() -> None:
    for group in set(GROUPS) - {"experiment"}:
        presets = sorted((CONF / group).glob("*.yaml"))
        assert presets
        for path in presets:
            written = OmegaConf.load(path)
            written = written.get(group, written)  # a preset of a world or a study may set other groups too
            kinds = {"source": SOURCES, "env": ENVS}.get(group)
            assert set(written) == names_of(kinds[written.name] if kinds else sections()[group]), path.name


def test_the_main_file_writes_out_the_rest() -> None:
    main = OmegaConf.load(CONF / "config.yaml")
    assert set(main) - {"defaults"} == names_of(Config) - (set(GROUPS) - {"experiment"})
    for name in set(sections()) & set(main):
        assert set(main[name]) == names_of(sections()[name]), name


def test_every_option_has_a_meaning_that_is_not_its_name() -> None:
    for key, _, field in walk(DEFAULT):
        meaning = field.metadata["meaning"]
        assert len(meaning) > 10 and meaning != key.rpartition(".")[2].replace("_", " "), key


@pytest.mark.parametrize("path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem)
def test_experiments_compose(path: Path) -> None:
    """Each sets exactly what it writes, in groups as well; the command line goes before it."""
    config = load_config([f"experiment={path.stem}"])
    written = OmegaConf.load(path)
    for section, value in written.items():
        if section == "defaults":
            continue
        for key, one in value.items() if OmegaConf.is_dict(value) else [("", value)]:
            assert value_of(config, f"{section}.{key}" if key else section) == one
    assert split_tasks(make_env(config.env), config).held_out
    assert load_config([f"experiment={path.stem}", "trainer.num_iterations=7"]).trainer.num_iterations == 7


@pytest.mark.parametrize("env", sorted(path.stem for path in (CONF / "env").glob("*.yaml")))
@pytest.mark.parametrize("source", sorted(path.stem for path in (CONF / "source").glob("*.yaml")))
def test_every_world_goes_with_every_source(env: str, source: str) -> None:
    """But for those that cannot read point sets."""
    if env == "point_game" and source not in READS_POINTS:
        with pytest.raises(ConfigError, match=f"source.name={source}.*env.name=point_game"):
            load_config([f"env={env}", f"source={source}"])
        return
    config = load_config([f"env={env}", f"source={source}"])
    assert config.env.variant == env and config.source.name == source
    assert config.name == config.run == f"{env}-{source}" and config.histories == [config.name]


@pytest.mark.parametrize("env", sorted(path.stem for path in (CONF / "env").glob("*.yaml")))
def test_every_world_has_the_tasks_its_preset_asks_for(env: str) -> None:
    config = load_config([f"env={env}"])
    split = split_tasks(make_env(config.env), config)
    assert len(split.train) == config.tasks.num_train and len(split.held_out) >= 6


@pytest.mark.parametrize("source", SOURCES)
def test_who_does_not_learn_need_not_succeed(source: str) -> None:
    expected = 0.0 if source in ("noise_distillation", "searcher", "optimal", "random") else 0.5
    assert load_config([f"source={source}"]).data.min_final_success == expected
    assert load_config([f"source={source}", "data.min_final_success=0.25"]).data.min_final_success == 0.25


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_compose(optimizer: str) -> None:
    assert load_config([f"optimizer={optimizer}"]).optimizer.name == optimizer


def test_names_follow_each_other_and_folders_the_names() -> None:
    config = load_config(["name=mine", "root=/tmp/x"])
    assert config.folder("videos") == Path("/tmp/x/videos/mine")
    assert config.histories_folders[0] == Path("/tmp/x/histories/mine")
    assert config.run_folder == Path("/tmp/x/logs/mine")
    other = load_config(["name=mine", "histories=theirs", "run=ours"])
    assert [other.histories_folders[0].name, other.run_folder.name] == ["theirs", "ours"]


def test_histories_are_one_name_or_a_mixture_of_several() -> None:
    config = load_config(["root=/tmp/x", "histories=[theirs,${name},7]", "name=mine", "data.weights=[3,0.5,1]"])
    assert config.histories == ["theirs", "mine", "7"] and config.data.weights == [3.0, 0.5, 1.0]
    assert config.histories_folders == [Path(f"/tmp/x/histories/{name}") for name in ("theirs", "mine", "7")]
    assert config.histories_folders[0] == Path("/tmp/x/histories/theirs")
    assert load_config(["histories=theirs"]) == load_config(["histories=[theirs]"])
    assert DEFAULT.data.weights == []


def test_reference_has_the_numbers_of_the_reference_pipeline() -> None:
    expected = {
        "env.name": "dark_room",
        "env.size": 9,
        "env.random_start": False,
        "env.terminate_on_goal": True,
        "env.max_episode_steps": 20,
        "tasks.num_train": 57,
        "source.name": "a2c",
        "source.num_learners": 1,
        "source.num_envs": 10,
        "source.num_env_steps": 2_500_000,
        "source.unroll_length": 10,
        "source.hidden_size": 128,
        "source.learning_rate": 1e-4,
        "source.adam_beta1": 0.9,
        "source.adam_beta2": 0.999,
        "source.adam_eps": 1e-6,
        "source.max_gradient_norm": 0.5,
        "source.entropy_coefficient": 0.01,
        "source.value_coefficient": 0.99,
        "source.videos_per_task": 1,
        "data.history_len": 800_000,
        "data.keep_every": [1],
        "data.kept_steps": 0,
        "data.min_final_success": 0.0,
        "model.tokens": "interleaved",
        "model.position": "env_time",
        "model.add_env_time": True,
        "model.obs_encoding": "cell",
        "model.context_len": 256,
        "model.embed_dim": 64,
        "model.num_layers": 4,
        "model.num_heads": 4,
        "model.ff_dim": 2048,
        "model.attention_dropout": 0.5,
        "model.residual_dropout": 0.1,
        "model.embedding_dropout": 0.0,
        "objective.name": "ad",
        "objective.weighting": "none",
        "objective.label_smoothing": 0.0,
        "optimizer.name": "adam",
        "optimizer.learning_rate": {
            "kind": "cosine",
            "progress": "updates",
            "initial": 3e-4,
            "final": 2e-6,
            "time": 22_000,
        },
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.99,
        "optimizer.weight_decay": 0.0,
        "optimizer.max_gradient_norm": 1.0,
        "trainer.num_iterations": 22_000,
        "trainer.mini_batch_size": 32,
        "search.goal_row": 0,
        "search.goal_column": 0,
    }
    config = load_config(["experiment=reference"])
    assert {key: value_of(config, key) for key in expected} == expected
    assert len(split_tasks(make_env(config.env), config).held_out) == 23
