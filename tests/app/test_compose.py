"""Composing: defaults of the code, presets, overrides, refusals, and the names and folders that follow from them.

Every line of `refusals.txt` is a command line and what its one-line error must name.
"""

import json
import re
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import ABSENT
from omegaconf import OmegaConf
from refusals import PLAIN, check_refusal, check_table, refusals

from docs.options_page import page
from icrl.app.compose import groups_of, load_config, presets_of
from icrl.app.root import CHOICES, Config
from icrl.config.options import Options, replace, walk
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.nn.gpt import GPTConfig
from icrl.runs.files import PROJECT, check_same, write_json
from icrl.sources import source_options
from icrl.sources.a2c import A2CConfig

PACKAGES = {  # of worlds by how the names of their presets begin
    **dict.fromkeys(("half_cheetah", "ant", "hopper", "walker"), "mujoco"),
    **{"minigrid": "minigrid", "ml1": "metaworld"},
}
DEFAULT = load_config()


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(lambda given: load_config([*PLAIN, *given]), overrides, named)


@pytest.mark.parametrize("line", Path(__file__).with_name("allowed.txt").read_text().splitlines())
def test_options_that_only_nearly_conflict_are_allowed(line: str) -> None:
    load_config([*PLAIN, *re.split(r" (?=[\w.]+=)", line)])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        *((f"env.size={value}", f"env.size={value}: must be int >= 2 and <= 64") for value in ("abc", "7.5", "65")),
        ("env.max_episode_steps=abc", "env.max_episode_steps=abc: must be int >= 1 and <= 10000"),
        *((f"env.size={number * '9'}", f"env.size={100 * '9'}") for number in (400, 5000)),
        *((f"{key}=a\0b", f"{key}=a\\u0000b") for key in ("name", "root", "presets", "module", "histories", "env.id")),
        ("name='a\nb'", "name=a\nb: must be a name without '/' or a leading dot"),
    ],
)
@pytest.mark.parametrize("experiment", ["default", "search"])
def test_a_wrong_option_is_named_before_the_rules_that_read_it(experiment: str, override: str, said: str) -> None:
    """In a short message."""
    with pytest.raises(ConfigError) as refused:
        load_config([f"experiment={experiment}", override])
    assert said in str(refused.value) and len(str(refused.value)) < 600


@settings(max_examples=6)
@given(st.sampled_from(["seed", "env", "name", "env.size", "x"]), st.text(max_size=12))
def test_any_text_ends_in_a_configuration_or_an_explanation(key: str, text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(load_config([f"{key}={text}"]), Config)


def test_defaults_are_those_of_the_code_and_overrides_replace_them() -> None:
    before = load_config(["experiment=four_layers"])
    assert before.source == DEFAULT.source == A2CConfig() and before.model == GPTConfig() != DEFAULT.model
    config = load_config(["experiment=reference", "source.unroll_length=4", "+seed=3"])
    assert isinstance(config.source, A2CConfig) and config.source.unroll_length == 4.0 and config.seed == 3
    assert config.source.discount == A2CConfig().discount and config.source.num_learners == 1
    assert replace(DEFAULT.model, context_len=7).context_len == 7
    with pytest.raises(TypeError, match="has no options"):
        replace(DEFAULT.model, context_length=7)


@pytest.mark.parametrize(
    ("options", "steps", "episodes", "development"),
    [
        ([], (30000, 30000), 40, 4),
        (["env.max_episode_steps=200"], (82000, 82000), 40, 4),
        (["env.max_episode_steps=200", "source.num_env_steps=30000"], (30000, 30000), 14, 4),
        (["source.num_env_steps=50000"], (50000, 30000), 40, 4),
        (["env.max_episode_steps=75", "source.num_envs=7", "source.unroll_length=9"], (30051, 30002), 40, 4),
        (["env.max_episode_steps=110", "source.num_envs=7", "source.unroll_length=9"], (31626, 31570), 40, 4),
        (["tasks.num_train=8"], (30000, 30000), 40, 2),
        (["tasks.num_train=2"], (30000, 30000), 40, 1),
        (["tasks.num_train=3", "data.num_development_tasks=2", "evaluation.num_episodes=7"], (30000, 30000), 7, 2),
    ],
)
def test_lengths_and_numbers_follow_from_the_horizon_and_the_tasks_unless_they_are_set(
    options: list[str], steps: tuple[int, int], episodes: int, development: int
) -> None:
    config = load_config([*options, "source.unroll_length=10"] if "unroll" not in str(options) else options)
    assert (config.source.num_env_steps, config.source.history_steps) == steps
    assert (config.evaluation.num_episodes, config.data.num_development_tasks) == (episodes, development)


def value_of(config: Options, key: str) -> Any:
    return next(value for name, value, _ in walk(config) if name == key)


def test_a_schedule_replaces_the_one_before_as_a_whole_and_its_parts_can_be_set() -> None:
    key = "optimizer.learning_rate"
    points = {"kind": "linear", "progress": "percent", "points": [[0, 1], [1, 0.5]]}
    linear = load_config([f"{key}={{kind: linear, progress: percent, points: [[0, 1], [1, 0.5]]}}"])
    assert value_of(linear, key) == points
    cosine = value_of(load_config([f"{key}.initial=0.5"]), key)
    assert cosine["initial"] == 0.5 and cosine["kind"] == "cosine" and "warmup" in cosine
    assert value_of(load_config([f"{key}=1e-3"]), key) == 1e-3


@pytest.mark.skipif("dqn" not in source_options(), reason="needs the extension value_sources")
def test_longer_histories_that_are_proposed_fit_unrolls_of_a_fraction() -> None:
    given = ["source=dqn", "source.unroll_length=2.5", "source.num_env_steps=150", "source.history_steps=150"]
    given += ["source.initial_collect_steps=0", "trainer.mini_batch_length=0", "model.context_len=10"]
    given += ["env.max_episode_steps=7", "data.kept_steps=0", "evaluation.num_episodes=40"]
    with pytest.raises(ConfigError, match=r"give source\.num_env_steps=2870 source\.history_steps=2870$"):
        load_config(given)
    load_config([*given, "source.num_env_steps=2870", "source.history_steps=2870"])


def test_check_same_names_the_field_and_both_values() -> None:
    """Neither other groups nor options that may change are compared."""
    before, compared = DEFAULT.model_dump(), ["seed", "env", "source", "device", "checkpoints"]
    check_same(DEFAULT, json.loads(json.dumps(before)), before, "logs/here")
    other = ["model.embed_dim=32", "checkpoints.keep_last=10", "source.videos_per_task=0", "device.type=cuda"]
    check_same(load_config(other), before, compared, "logs/here")
    for key, new in (("env.size", 7), ("seed", 3), ("source.learning_rate", 0.25), ("device.dtype", "float64")):
        said = rf"^logs/here was made with {key}={value_of(DEFAULT, key)}.*another name="
        with pytest.raises(ConfigError, match=said):
            check_same(load_config([f"{key}={new}"]), before, compared, "logs/here")
    del before["env"]["size"]
    for changed, message in ((before, r"env\.size=null.* has \d"), (before | {"env": "cpu"}, r"env\.name=null.* has ")):
        with pytest.raises(ConfigError, match=message):
            check_same(DEFAULT, changed, ["env"], "logs/here")


@pytest.mark.parametrize("change", ["finetune.gae_lambda=0.9", "optimizer.learning_rate=0.5", "data.keep_every=[2]"])
def test_the_option_that_check_same_proposes_is_one_that_can_be_given(change: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        check_same(load_config([change]), DEFAULT.model_dump(), ["finetune", "optimizer", "data"], "logs/here")
    proposed = str(refusal.value).partition("give ")[2].partition(" here too")[0]
    check_same(load_config([change, proposed]), DEFAULT.model_dump(), ["finetune", "optimizer", "data"], "logs/here")


@pytest.mark.parametrize("preset", [f"{group}={name}" for group in groups_of("config") for name in presets_of(group)])
def test_every_preset_composes_and_says_only_what_differs(preset: str) -> None:
    group, _, name = preset.partition("=")
    fits = ["model.context_len=80"] if preset == "env=gymnasium" else []
    options = getattr(load_config([preset, *fits]), group, None)
    written = OmegaConf.to_container(OmegaConf.load(presets_of(group)[name]), resolve=False) or {}
    if isinstance(options, Options) and "defaults" not in written:
        fields = type(options).model_fields
        defaults = {key: field.get_default(call_default_factory=True) for key, field in fields.items()}
        own = written.get(group, written)
        same = [key for key, value in own.items() if key != "name" and defaults.get(key, ...) == value]
        assert not same, f"{preset} repeats the defaults of {same}"


@pytest.mark.parametrize("env", [env for env in presets_of("env") if env != "recorded"])
def test_every_world_goes_with_sources_and_has_the_tasks_its_preset_asks_for(env: str) -> None:
    """A preset with the name of a world stands for all presets of this world, with every source."""
    for source in source_options() if env == "dark_room" else ("a2c",):
        config = load_config([f"env={env}", f"source={source}", "evaluation.num_episodes=4", "model.context_len=20"])
        assert config.data.min_final_success == (0.5 if source_options()[source].learns else 0.0)
    for name, package in PACKAGES.items():
        if env.startswith(name):
            pytest.importorskip(package)
    with closing(make_env(config.env)) as made:
        assert len(made.all_tasks()) > config.tasks.num_train


def test_names_and_folders_follow_each_other() -> None:
    config = load_config(["env=tiny_room", "source=a2c", "root=/tmp/x"])
    assert config.name == config.run == "tiny_room-a2c" and config.histories == ["tiny_room-a2c"]
    assert str(config.folder("logs")) == "/tmp/x/logs/tiny_room-a2c" == str(config.run_folder)
    other = load_config(["name=mine", "histories=[a,b]", "run=theirs"])
    assert [folder.name for folder in other.histories_folders] == ["a", "b"] and other.run_folder.name == "theirs"
    assert load_config(["histories=a"]).histories == ["a"]
    typed = load_config(["name=0.10", "histories=1e3", "run=007"])
    assert (typed.name, typed.histories, typed.run) == ("0.10", ["1e3"], "007")
    assert load_config(["histories=[0.10, 1e3,'007',true,c d]"]).histories == ["0.10", "1e3", "007", "true", "c d"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with presets of one's own, which build on each other and on those of the project."""
    folder = tmp_path / "my 'own' presets"
    for name, text in {
        "experiment/mine": "# @package _global_\n# Mine.\ndefaults: [default, override /env: closet]\nname: mine\n",
        "env/closet": "defaults: [dark_room]\nsize: 5\n",
    }.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_presets_of_ones_own_are_found_in_their_folder(own, monkeypatch) -> None:
    monkeypatch.chdir(own.parent)
    there = "presets=" + own.name.join('""')
    config = load_config([there, "experiment=mine", "data.num_development_tasks=1", "seed=3"])
    assert (config.name, value_of(config, "env.size"), config.seed, config.presets) == ("mine", 5, 3, own.name)
    assert config.source == load_config(["env.size=5", "data.num_development_tasks=1"]).source
    assert "mine" in presets_of("experiment", own) and "mine" not in presets_of("experiment")
    (own / "env/closet.yaml").write_text("defaults: [dark_room]\nsize: 4\n")
    changed = load_config([there, "env=closet", "data.num_development_tasks=1"])
    assert value_of(changed, "env.size") == 4, "a preset may change while a notebook is open"
    for options, said in (
        ([there, "experiment=mind"], "experiment=mind: must be one of .*mine.*did you mean mine"),
        (["experiment=mine"], "experiment=mine: must be one of"),
        (["presets=nowhere"], "presets=nowhere: must be a folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_config(options)
    (own / "experiment/mine.yaml").write_text("# @package _global_\ndefaults: [default]\nmodule: [mine.py]\n")
    with pytest.raises(ConfigError, match=r"module=\['mine.py'\]: a preset cannot load files; give it on the command"):
        load_config([there, "experiment=mine"])
    (own / "env/tiny_room.yaml").touch()
    with pytest.raises(ConfigError, match=r"env/tiny_room.yaml has the name of a preset in .*conf"):
        load_config([there, "env=closet"])


def test_a_seed_of_null_is_drawn_unless_the_run_has_recorded_one(tmp_path, monkeypatch) -> None:
    asked = [f"root={tmp_path}", "name=a", "seed=null"]
    drawn = {load_config(asked).seed for _ in range(4)}
    assert len(drawn) == 4 and all(0 <= seed < 10**9 for seed in drawn)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="each process of torchrun would draw a seed of its own"):
        load_config(asked)
    for wrong in ({"sessions": 3}, {"sessions": []}, {"config": [5]}, {"config": {"seed": -1}}, {"seed": True}):
        write_json(tmp_path / "logs/a/gpt/run.json", wrong)
        with pytest.raises(ConfigError, match="each process of torchrun"):
            load_config(asked)
    write_json(tmp_path / "logs/a/gpt/run.json", {"sessions": [{"config": {"seed": 5}}]})
    assert load_config(asked).seed == 5
    write_json(tmp_path / "logs/a/evaluation/results.json", {"config": {"seed": 6}})
    assert load_config(asked).seed == 6
    write_json(tmp_path / "histories/a/manifest.json", {"config": {"seed": 7}})
    assert load_config(asked).seed == 7 and load_config([*asked[:2], "seed=8"]).seed == 8


def test_the_page_in_the_docs_has_every_option_with_its_meaning_and_stages_and_every_choice() -> None:
    whole, kept = page(), (PROJECT / "docs/settings.md").read_text()
    assert kept == whole or ABSENT, "run `make docs`"
    check_table(whole, DEFAULT)
    for group, choices in ((group, choices()) for group, choices in CHOICES.items()):
        named = {
            name
            for row in re.findall(rf"^\| `{group}.name` .*", whole, re.MULTILINE)
            for name in re.findall(r"\w+", row)
        }
        ours = {name for name, choice in choices.items() if choice.__module__.startswith("icrl.")}  # not of other tests
        assert named >= ours
