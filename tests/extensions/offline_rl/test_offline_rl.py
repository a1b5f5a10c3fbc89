"""Programs of offline RL: critics from histories, policies from critics, and both in context."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
from harness import TINY, files_of, kill_late, results_of, run
from toy import plain

from icrl.config.modules import command_of
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.extensions.offline_rl.acting import Guided
from icrl.extensions.offline_rl.critics import make_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt_policy import GPTPolicy
from icrl.runs import checkpoint
from icrl.runs.files import read_json, write_json
from icrl.spaces import EnvSpec

CPU = torch.device("cpu")
# Truncations are drawn, dropout is on (of the tiny run), targets move between updates.
OFFLINE = ("critic.horizon=episode", "critic.target_update_interval=2", "critic.imitation_scaling=0.5")
SNAPSHOTS = ("checkpoints.snapshot_interval=8",)  # every two updates of 4 windows
SHORT = ("evaluation.ablations=false", "evaluation.temperatures=[]", "evaluation.num_streams=1")
NEW = ("name=new", "histories=tiny")
CRITIC = ("policy.model=critic", "policy.advantage_scale=1")
GROUPS = ("encoder", "decoder", "critic", "awr")  # that the programs of the core lack


def read_by(stage: str, *options: str) -> list[str]:
    """Those of the `options` that a stage has."""
    return [one for one in options if stage in ("train_ilql", "extract_policy") or not one.startswith(GROUPS)]


def go(stage: str, root: Path, *options: str) -> str:
    return harness.done(stage, root, *read_by(stage, *OFFLINE, *options))


def refusal(stage: str, root: Path, *options: str) -> str:
    return harness.refusal(stage, root, *read_by(stage, *OFFLINE, *options), preset=TINY)


@pytest.fixture(scope="module")
def critics(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run with a critic and an extracted policy; only to be read."""
    root = Path(shutil.copytree(finished, tmp_path_factory.mktemp("critics") / "root"))
    go("train_ilql", root, *SNAPSHOTS)
    go("extract_policy", root)
    return root


@pytest.fixture
def offline(critics: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(critics, tmp_path / "root"))


def newest(root: Path, name: str) -> dict[str, Any]:
    found = checkpoint.load_newest(root / "logs" / name, "last", CPU)
    assert found is not None
    return found[0]


# ---- interruptions and snapshots


@pytest.mark.parametrize(("stage", "folder"), [("train_ilql", "ilql"), ("extract_policy", "awr")])
def test_an_interrupted_program_continues_to_the_same_bits(critics, offline, stage, folder):
    kill_late(offline / "logs/tiny" / folder, 4)
    go(stage, offline, *SNAPSHOTS[: stage == "train_ilql"])
    assert results_of(offline) == results_of(critics)
    before = files_of(offline)
    assert "all 6 updates of tiny are done" in go(stage, offline, *SNAPSHOTS)
    assert files_of(offline) == before


def test_a_snapshot_is_all_that_is_needed_to_play(offline, tmp_path):
    """Moved elsewhere, and its run gone."""
    snapshots = Path(shutil.move(offline / "logs/tiny/ilql", tmp_path / "elsewhere"))
    shutil.rmtree(offline)
    found = sorted(path.name for path in snapshots.glob("snapshot-*.pt"))
    assert found == [f"snapshot-00000000{update}.pt" for update in (2, 4, 6)]
    state, about = checkpoint.load(snapshots / "snapshot-000000004.json", CPU)
    config = OfflineConfig.model_validate(about["description"]["config"])
    env = make_env(config.env)
    critic = make_critic(config, env.spec)
    critic.load_state_dict(state["model"])
    assert critic.updates == 4 and EnvSpec.of(about["description"]["env"]) == env.spec
    policy = GPTPolicy(Guided(None, critic.eval().target, 1.0), 1.0, 1.0, 0.75)
    assert play_episodes(policy, env, env.all_tasks()[:2], 2, 3, seed=0)[0].returns.shape[-1] == 3


@pytest.mark.parametrize("index", [2, -1])
def test_from_a_snapshot_a_new_run_comes_to_the_end_of_the_old_one(offline, index):
    """To the bit, where both have as many updates."""
    snapshots = Path(shutil.copytree(offline / "logs/tiny/ilql", offline / "kept"))
    for path in (*snapshots.glob("last-*"), *(snapshots.glob("snapshot-*6.*") if index < 0 else ())):
        path.unlink()
    options = (f"critic.initial_model_prefix={snapshots}", f"critic.initial_model_index={index}")
    go("train_ilql", offline, *NEW, *options)
    one, other = newest(offline, "tiny/ilql"), newest(offline, "new/ilql")
    assert all(plain(one[part]) == plain(other[part]) for part in ("step", "model", "updater", "generators"))
    assert other["model"]["updates"] == 6


# ---- models to start from


def test_programs_start_from_the_models_that_options_name(offline):
    """A critic is seen after an update with a rate of 0; see `test_critics.py` for the rest."""
    gpt, critic = (newest(offline, f"tiny/{name}")["model"] for name in ("gpt", "ilql"))
    still, path = ("optimizer.learning_rate=0", "trainer.num_iterations=1"), f"{offline}/logs/tiny/%s/last-000000006.pt"
    starts = (f"encoder.load_from={path % 'gpt'}", f"decoder.load_from={path % 'ilql'}", "critic.separate_value=true")
    go("train_ilql", offline, *NEW, *still, *starts)
    now = newest(offline, "new/ilql")["model"]
    trunks = [f"{part}." for part in ("online.trunk", "online.value_trunk", "target.trunk")]
    for name, value in gpt.items():
        assert name.startswith("policy_head.") or all(torch.equal(now[f"{part}{name}"], value) for part in trunks)
    heads = [name for name in critic if name.startswith("target.") and "_head" in name]
    assert heads and all(torch.equal(now[name], critic[name]) for name in heads)
    go("extract_policy", offline, "awr.experiment_name=awr-new", *still[:1], f"awr.initial_encoder={path % 'ilql'}")
    for name, value in newest(offline, "tiny/awr-new")["model"].items():
        assert name.startswith("policy_head.") or torch.equal(critic[f"target.trunk.{name}"], value)


def test_models_that_cannot_be_started_from(offline):
    """Among them one that learned under another split of the same world."""
    logs, prefix, seed = offline / "logs/tiny", "critic.initial_model_prefix", "tasks.seed=1"
    go("train_agents", offline, "name=split", seed)
    split = ("train_ilql", "name=split", seed)
    new, policy = ("train_ilql", *NEW), ("extract_policy", "histories=tiny", "awr.experiment_name=awr-new")
    for (stage, *names), option, path, said, *more in (
        (new, "encoder.load_from", logs / "ilql/last-000000006.pt", "size mismatch", "encoder.embed_dim=4"),
        (new, prefix, logs / "ilql", "optimizer.initialize=true", "optimizer=sgd", "optimizer.learning_rate=0.01"),
        (policy, "awr.initial_encoder", logs / "source/last-000000006.pt", "is a model of train_agents"),
        (split, "critic.initial_model", logs / "ilql/last-000000006.pt", "held out or set aside"),
        (split, prefix, logs / "ilql", "held out or set aside"),
        (split, "encoder.load_from", logs / "gpt/last-000000006.pt", "held out or set aside"),
    ):
        message = run(stage, offline, *OFFLINE, *names, f"{option}={path}", *more).refusal
        assert message.startswith(f"{option}={path}") and said in message, message


# ---- extraction


def test_epochs_are_counted_in_windows(offline):
    """Also with weights that are those of whole batches."""
    whole = ("awr.normalize=mean", "trainer.gradient_accumulation_steps=1")
    out = go("extract_policy", offline, "awr.experiment_name=awr-other", "awr.num_epochs=1", *whole).splitlines()
    windows = sum(int(line.split(" windows")[0].replace(",", "")) for line in out if " windows of 8" in line)
    expected = -(-windows // 4)
    assert expected > 6 and newest(offline, "tiny/awr-other")["step"] == expected
    assert read_json(offline / "logs/tiny/awr-other/finished.json")["updates"] == expected


def test_the_presets_of_the_reference_train(offline):
    presets = ("critic=reference", "awr=reference", *NEW, "run=new")
    for stage in ("train_ilql", "extract_policy"):
        harness.done(stage, offline, *presets)
    assert read_json(offline / "logs/new/awr/finished.json")["updates"] > 6


def test_a_run_that_is_there_is_gone_on_with_only_if_asked(offline):
    go("extract_policy", offline, "awr.resume=false", "awr.experiment_name=awr-other")
    for more in ((), ("awr.experiment_name=awr-other",)):
        assert "awr.resume=false" in refusal("extract_policy", offline, "awr.resume=false", *more)
        assert "are done" in go("extract_policy", offline, *more)


def test_a_policy_is_of_one_critic(offline):
    """Whether it is finished or not."""
    finished, critic = offline / "logs/tiny/awr/finished.json", offline / "logs/tiny/ilql"
    shutil.rmtree(critic)
    assert "no finished training" in refusal("extract_policy", offline)
    go("train_ilql", offline, "trainer.num_iterations=4", "trainer.evaluate=false", "evaluation.checkpoint=last")
    assert "another critic" in refusal("extract_policy", offline)
    finished.unlink()
    assert "another critic" in refusal("extract_policy", offline)
    shutil.rmtree(critic)
    go("train_ilql", offline, "critic.expectile=0.7")
    assert "critic.expectile=0.7" in refusal("extract_policy", offline)


def test_critics_of_other_worlds_and_histories_are_refused(offline):
    sidecar = offline / "logs/tiny/ilql/last-000000006.json"
    before = read_json(sidecar)
    (offline / "logs/tiny/awr/finished.json").unlink()
    other_world, other_histories = deepcopy(before), deepcopy(before)
    other_world["description"]["config"]["env"]["max_episode_steps"] = 5
    other_histories["description"]["histories"][0]["sha256"] = "0"
    for about, said in ((other_world, "env.max_episode_steps=5"), (other_histories, "different histories")):
        write_json(sidecar, about)
        for stage, option in (("extract_policy", "seed=0"), ("evaluate", "policy.advantage_scale=1")):
            assert said in refusal(stage, offline, option)


# ---- play


def numbers(root: Path, suffix: str = "") -> Any:
    results = read_json(root / f"logs/tiny/evaluation{suffix}/results.json")
    return {key: value for key, value in results.items() if key not in ("config", "checkpoint")}


def test_each_player_has_results_of_its_own(critics, offline):
    suffixes = {
        "-advantage=3.0": ("policy.advantage_scale=3",),
        "-policy=awr": ("policy.model=awr",),
        "-policy=critic-advantage=3.0": ("policy.model=critic", "policy.advantage_scale=3"),
    }
    for options in suffixes.values():
        go("evaluate", offline, *options, *SHORT)
    told = {json.dumps(numbers(offline, suffix), sort_keys=True) for suffix in ("", *suffixes)}
    assert len(told) == 1 + len(suffixes)
    for folder in ("ilql", "evaluation"):  # without a scale no critic is read
        shutil.rmtree(offline / "logs/tiny" / folder)
    go("evaluate", offline, "policy.advantage_scale=0")
    assert numbers(offline) == numbers(critics)


def test_a_player_that_is_not_there_or_was_trained_with_other_options(offline):
    for name, program, options in (
        ("ilql", "train_ilql", ("policy.advantage_scale=1",)),
        ("ilql", "train_ilql", CRITIC),
        ("awr", "extract_policy", ("policy.model=awr",)),
    ):
        folder = offline / "logs/tiny" / name
        (folder / "finished.json").rename(offline / "finished.json")
        message = refusal("evaluate", offline, *options)
        assert f"no finished training in {folder}" in message and command_of(program) in message
        (offline / "finished.json").rename(folder / "finished.json")
    for option, program in (("critic.expectile", "train_ilql"), ("awr.advantage_threshold", "extract_policy")):
        assert option in refusal(program, offline, f"{option}=0.7")
    assert "model.context_len" in refusal("evaluate", offline, *CRITIC, "model.context_len=7")


@pytest.mark.parametrize(("stage", "folder"), [("train_ilql", "ilql"), ("extract_policy", "awr")])
def test_how_it_was_evaluated_is_part_of_a_run(offline, stage, folder):
    """Finished or not: who plays, how often, and how greedily a critic acts on its advantages."""
    options = ["policy.temperature=0.5", "evals.num_eval_episodes=16"]
    options += ["awr.inverse_temperature=3"] if stage == "train_ilql" else []
    for _ in range(2):
        for option in options:
            assert option.partition("=")[0] in refusal(stage, offline, option)
        (offline / "logs/tiny" / folder / "finished.json").unlink(missing_ok=True)


def test_a_critic_with_two_trunks_and_no_values_of_its_own(offline):
    """Every preset learns, and its critic plays."""
    for preset in ("iql", "cql"):
        options = (f"critic={preset}", "critic.horizon=episode", *NEW, f"name={preset}", f"run={preset}")
        harness.done("train_ilql", offline, *options)
        harness.done("evaluate", offline, *read_by("evaluate", *options), *CRITIC, *SHORT)


def test_a_reward_plugin_is_recorded_compared_and_run_by_who_learns_from_it_alone(root, tmp_path):
    mark, plugin = tmp_path / "mark", tmp_path / "plugin.py"
    text = f"open({str(mark)!r}, 'w')\ndef get_reward(history):\n    return 2 * history.reward\n"
    plugin.write_text(text)
    option = f"critic.reward_plugin={plugin}"
    go("train_ilql", root, option)
    assert mark.exists()
    state = checkpoint.load_newest(root / "logs/tiny/ilql", "last", CPU)
    assert state is not None and state[1]["description"]["reward_plugin"]["text"] == text
    mark.unlink()
    go("extract_policy", root, option)
    go("evaluate", root, option, "policy.advantage_scale=1", *SHORT)
    go("evaluate", root, option, *CRITIC, *SHORT)
    assert not mark.exists()
    plugin.write_text(text.replace("2", "3"))
    for _ in range(2):  # finished, and not
        assert option in refusal("train_ilql", root, option)
        assert "critic.reward_plugin" in refusal("train_ilql", root)
        (root / "logs/tiny/ilql/finished.json").unlink(missing_ok=True)
