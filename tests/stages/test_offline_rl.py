"""Programs of offline RL: critics from histories, policies from critics, and both in context."""

import json
import shutil
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
from harness import TINY, Exploit, files_of, kill_late, results_of, run

from icrl.config.root import Config
from icrl.contracts import EnvSpec
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.nn.gpt_policy import GPTPolicy
from icrl.nn.guided import Guided
from icrl.runs import checkpoint
from icrl.runs.files import read_json, sha256, write_json
from icrl.training.critics import make_critic

CPU = torch.device("cpu")
# Truncations are drawn, dropout is on (of the tiny run), targets move between updates.
OFFLINE = ("critic.horizon=episode", "critic.target_update_interval=2", "critic.imitation_scaling=0.5")
SNAPSHOTS = ("checkpoints.snapshot_interval=8",)  # every two updates of 4 windows
SHORT = ("evaluation.ablations=false", "evaluation.temperatures=[]", "evaluation.num_streams=1")
NEW = ("name=new", "histories=tiny")
CRITIC = ("policy.model=critic", "policy.advantage_scale=1")
go = partial(harness.done, preset=(*TINY, *OFFLINE))
refusal = partial(harness.refusal, preset=(*TINY, *OFFLINE))


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


def same(one: Any, other: Any) -> bool:
    """Nested states, bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


# ---- interruptions and snapshots


@pytest.mark.parametrize(("stage", "folder"), [("train_ilql", "ilql"), ("extract_policy", "awr")])
def test_an_interrupted_program_continues_to_the_same_bits(
    critics: Path, offline: Path, stage: str, folder: str
) -> None:
    kill_late(offline / "logs/tiny" / folder, 4)
    go(stage, offline, *SNAPSHOTS[: stage == "train_ilql"])
    assert results_of(offline) == results_of(critics)
    before = files_of(offline)
    assert "all 6 updates of tiny are done" in go(stage, offline, *SNAPSHOTS)
    assert files_of(offline) == before


def test_a_snapshot_is_all_that_is_needed_to_play(offline: Path, tmp_path: Path) -> None:
    """Moved elsewhere, and its run gone."""
    snapshots = Path(shutil.move(offline / "logs/tiny/ilql", tmp_path / "elsewhere"))
    shutil.rmtree(offline)
    found = sorted(path.name for path in snapshots.glob("snapshot-*.pt"))
    assert found == [f"snapshot-00000000{update}.pt" for update in (2, 4, 6)]
    state, about = checkpoint.load(snapshots / "snapshot-000000004.json", CPU)
    config = Config.model_validate(about["description"]["config"])
    env = make_env(config.env)
    critic = make_critic(config, env.spec)
    critic.load_state_dict(state["model"])
    assert critic.updates == 4 and EnvSpec.of(about["description"]["env"]) == env.spec
    policy = GPTPolicy(Guided(None, critic.eval().target, 1.0), 1.0, 1.0, 0.75)
    assert play_episodes(policy, env, env.all_tasks()[:2], 2, 3, seed=0)[0].returns.shape[-1] == 3


@pytest.mark.parametrize("index", [2, -1])
def test_from_a_snapshot_a_new_run_comes_to_the_end_of_the_old_one(offline: Path, index: int) -> None:
    """To the bit, where both have as many updates."""
    snapshots = Path(shutil.copytree(offline / "logs/tiny/ilql", offline / "kept"))
    for path in (*snapshots.glob("last-*"), *(snapshots.glob("snapshot-*6.*") if index < 0 else ())):
        path.unlink()
    options = (f"critic.initial_model_prefix={snapshots}", f"critic.initial_model_index={index}")
    go("train_ilql", offline, *NEW, *options)
    one, other = newest(offline, "tiny/ilql"), newest(offline, "new/ilql")
    assert all(same(one[part], other[part]) for part in ("step", "model", "updater", "generators"))
    assert other["model"]["updates"] == 6


def test_from_a_snapshot_with_a_new_optimizer(offline: Path) -> None:
    options = (f"critic.initial_model_prefix={offline}/logs/tiny/ilql", "critic.initial_model_index=4")
    go("train_ilql", offline, *NEW, *options, "optimizer.initialize=true")
    steps = {float(state["step"]) for state in newest(offline, "new/ilql")["updater"]["optimizer"]["state"].values()}
    assert steps == {2.0}
    options = (*NEW, *options, "name=other", "optimizer=sgd", "optimizer.learning_rate=0.01")
    assert "optimizer.initialize=true" in run("train_ilql", offline, *OFFLINE, *options).refusal
    go("train_ilql", offline, *options, "optimizer.initialize=true")


# ---- models to start from


def of(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("option", "source", "separate"),
    [
        *(
            ("encoder.load_from", "gpt", False),
            ("encoder.load_from", "ilql", True),
            ("encoder.load_from", "awr", False),
        ),
        *(("decoder.load_from", "ilql", False), ("critic.initial_model", "ilql", False)),
    ],
)
def test_a_new_critic_starts_from_a_trunk_heads_or_a_whole_critic(
    offline: Path, option: str, source: str, separate: bool
) -> None:
    """The new critic is seen before its first update."""
    (path,) = (offline / f"logs/tiny/{source}").glob("last-000000006.pt")
    still = ("optimizer.learning_rate=0", "trainer.num_iterations=1", f"critic.separate_value={separate}".lower())
    go("train_ilql", offline, *NEW, *still, f"{option}={path}")
    then, now = newest(offline, f"tiny/{source}")["model"], newest(offline, "new/ilql")["model"]
    if option == "critic.initial_model":
        assert same(of(now, "online."), of(then, "online."))
    elif option == "decoder.load_from":
        for name, value in of(now, "online.").items():
            trained = any(torch.equal(value, then[f"{part}.{name}"]) for part in ("online", "target"))
            assert trained == ("_head" in name) or value.unique().numel() == 1, name
            assert torch.equal(value, now[f"target.{name}"])
    else:
        trunk = of(then, "target.trunk." if source == "ilql" else "")
        trunk = {name: value for name, value in trunk.items() if not name.startswith("policy_head.")}
        for prefix in ("online.trunk.", "target.trunk.", *(["online.value_trunk."] if separate else [])):
            assert same(of(now, prefix), trunk), prefix
        head = "online.q_heads.0.0.weight"
        assert not torch.equal(now[head], newest(offline, "tiny/ilql")["model"][head])


def test_a_policy_starts_from_a_trunk(offline: Path) -> None:
    options = ("awr.experiment_name=other", "optimizer.learning_rate=0")
    for source in ("gpt", "ilql"):
        shutil.rmtree(offline / "logs/tiny/other", ignore_errors=True)
        path = offline / f"logs/tiny/{source}/last-000000006.pt"
        go("extract_policy", offline, *options, f"awr.initial_encoder={path}")
        then, now = newest(offline, f"tiny/{source}")["model"], newest(offline, "tiny/other")["model"]
        for name, value in of(then, "target.trunk." if source == "ilql" else "").items():
            assert torch.equal(value, now[name]) != name.startswith("policy_head."), name


def test_models_that_cannot_be_started_from(offline: Path, tmp_path: Path) -> None:
    logs = offline / "logs/tiny"
    gpt, critic, agents = (logs / f"{name}/last-000000006.pt" for name in ("gpt", "ilql", "source"))
    bare = Path(shutil.copy(critic, tmp_path / "bare.pt"))
    new, policy = ("train_ilql", *NEW), ("extract_policy", "histories=tiny", "awr.experiment_name=new")
    small, prefix = "encoder.embed_dim=4", "critic.initial_model_prefix"
    (damaged,) = (logs / "ilql").glob("snapshot-*2.pt")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for (stage, *names), option, path, said, *more in (
        (new, "critic.initial_model", tmp_path, "must be an existing checkpoint"),
        (new, "decoder.load_from", bare, "bare.pt"),
        (new, "encoder.load_from", critic, "size mismatch", small),
        (new, "critic.initial_model", critic, "size mismatch", small),
        (new, "decoder.load_from", gpt, "is a model of train_gpt"),
        (new, "critic.initial_model", gpt, "is a model of train_gpt"),
        (new, "encoder.load_from", agents, "is a model of train_agents, but must be one of "),
        (policy, "awr.initial_encoder", "no.pt", "must be an existing checkpoint"),
        (policy, "awr.initial_encoder", agents, "is a model of train_agents, but must be one of "),
        (new, prefix, tmp_path / "nowhere", "has no snapshots"),
        (new, prefix, logs / "ilql", "has snapshots 2, 4, 6", "critic.initial_model_index=3"),
        (new, prefix, logs / "gpt", "train_gpt"),
        (new, prefix, logs / "ilql", "size mismatch", "encoder.embed_dim=16"),
        (new, prefix, logs / "ilql", "does not fit", "critic.separate_value=true"),
        (new, prefix, logs / "ilql", "trainer.num_iterations=5", "trainer.num_iterations=5"),
        (new, prefix, logs / "ilql", damaged.name, "critic.initial_model_index=2"),
    ):
        message = run(stage, offline, *OFFLINE, *names, f"{option}={path}", *more).refusal
        assert said in message and (path == bare or said == damaged.name or f"{option}={path}" in message), message
    go("train_ilql", offline, *NEW, f"{prefix}={logs}/ilql")


def test_models_that_know_held_out_tasks(offline: Path) -> None:
    """A model that learned under another split of the same world is refused."""
    split, logs = ("name=new", "tasks.seed=1"), offline / "logs/tiny"
    go("train_agents", offline, *split)
    for option in (
        f"critic.initial_model={logs}/ilql/last-000000006.pt",
        f"critic.initial_model_prefix={logs}/ilql",
        f"encoder.load_from={logs}/gpt/last-000000006.pt",
    ):
        message = run("train_ilql", offline, *OFFLINE, *split, option).refusal
        assert message.startswith(option) and "held out or set aside" in message and "tasks.seed" in message, message


# ---- extraction


def test_epochs_are_counted_in_windows(offline: Path) -> None:
    out = go("extract_policy", offline, "awr.experiment_name=other", "awr.num_epochs=1").splitlines()
    windows = sum(int(line.split(" windows")[0].replace(",", "")) for line in out if " windows of 8" in line)
    expected = -(-windows // 4)
    assert expected > 6 and newest(offline, "tiny/other")["step"] == expected
    assert read_json(offline / "logs/tiny/other/finished.json")["updates"] == expected


def test_a_run_that_is_there_is_gone_on_with_only_if_asked(offline: Path) -> None:
    go("extract_policy", offline, "awr.resume=false", "awr.experiment_name=other")
    for more in ((), ("awr.experiment_name=other",)):
        assert "awr.resume=false" in refusal("extract_policy", offline, "awr.resume=false", *more)
        assert "are done" in go("extract_policy", offline, *more)


def test_a_policy_is_of_one_critic(offline: Path) -> None:
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


def test_critics_of_other_worlds_tasks_and_contexts_are_refused(offline: Path) -> None:
    sidecar = offline / "logs/tiny/ilql/last-000000006.json"
    before = read_json(sidecar)
    (offline / "logs/tiny/awr/finished.json").unlink()
    changes = (("env", "max_episode_steps", 5), ("data", "keep_every", [2]), ("critic", "expectile", 0.7))
    for group, key, value in (*changes, ("", "", None)):
        about, said = deepcopy(before), f"{group}.{key}={value}" if group else "different histories"
        if group:
            about["description"]["config"][group][key] = value
        else:
            about["description"]["histories"][0]["sha256"] = "0"
        write_json(sidecar, about)
        for stage, option in (("extract_policy", "seed=0"), ("evaluate", "policy.advantage_scale=1")):
            assert said in run(stage, offline, *OFFLINE, option).refusal


# ---- play


def numbers(root: Path, suffix: str = "") -> Any:
    results = read_json(root / f"logs/tiny/evaluation{suffix}/results.json")
    return {key: value for key, value in results.items() if key not in ("config", "checkpoint")}


def test_each_player_has_results_of_its_own(critics: Path, offline: Path) -> None:
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


def test_a_player_that_is_not_there_or_was_trained_with_other_options(offline: Path) -> None:
    for name, program, options in (
        ("ilql", "train_ilql", ("policy.advantage_scale=1",)),
        ("ilql", "train_ilql", CRITIC),
        ("awr", "extract_policy", ("policy.model=awr",)),
    ):
        folder = offline / "logs/tiny" / name
        (folder / "finished.json").rename(offline / "finished.json")
        message = refusal("evaluate", offline, *options)
        assert f"no finished training in {folder}" in message and f"python -m src.{program}" in message
        (offline / "finished.json").rename(folder / "finished.json")
    for option, program, player in (
        ("critic.expectile", "train_ilql", CRITIC),
        ("awr.advantage_threshold", "extract_policy", ["policy.model=awr"]),
    ):
        assert option in refusal(program, offline, f"{option}=0.7")
        assert option in refusal("evaluate", offline, *player, f"{option}=0.7")


@pytest.mark.parametrize(("stage", "folder"), [("train_ilql", "ilql"), ("extract_policy", "awr")])
def test_how_it_was_evaluated_is_part_of_a_run(offline: Path, stage: str, folder: str) -> None:
    """Finished or not: who plays, how often, and how greedily a critic acts on its advantages."""
    options = ["policy.temperature=0.5", "evals.num_eval_episodes=16"]
    options += ["awr.inverse_temperature=3"] if stage == "train_ilql" else []
    for _ in range(2):
        for option in options:
            assert option.partition("=")[0] in refusal(stage, offline, option)
        (offline / "logs/tiny" / folder / "finished.json").unlink(missing_ok=True)


def test_a_policy_of_whole_batches_has_whole_batches(offline: Path) -> None:
    for option in ("awr.normalize=softmax", "awr.normalize=mean"):
        refused = refusal("extract_policy", offline, "awr.experiment_name=new", option)
        assert option in refused and "trainer.gradient_accumulation_steps=2" in refused
    go("extract_policy", offline, "awr.experiment_name=new", option, "trainer.gradient_accumulation_steps=1")


def test_a_critic_with_two_trunks_and_no_values_of_its_own(offline: Path) -> None:
    """Every preset learns, and its critic plays."""
    for preset in ("iql", "cql"):
        options = (f"critic={preset}", "critic.horizon=episode", *NEW, f"name={preset}", f"run={preset}")
        harness.done("train_ilql", offline, *options)
        harness.done("evaluate", offline, *options, *CRITIC, *SHORT)


# ---- what is not run


def test_no_checkpoint_is_unpickled(offline: Path, tmp_path: Path) -> None:
    """Not even with the right checksum beside it."""
    mark, logs = tmp_path / "mark", offline / "logs/tiny"
    for path in (*logs.glob("ilql/*.pt"), *logs.glob("awr/*.pt")):
        torch.save({"model": Exploit(mark)}, path)
        sidecar = path.with_suffix(".json")
        write_json(sidecar, read_json(sidecar) | {"state_sha256": sha256(path)})
    for stage, *options in (
        ("evaluate", "policy.advantage_scale=1"),
        ("evaluate", "policy.model=awr"),
        ("extract_policy", "awr.experiment_name=new"),
        ("train_ilql", "name=new", f"critic.initial_model_prefix={logs}/ilql"),
        ("train_ilql", "name=new", f"encoder.load_from={logs}/ilql/last-000000006.pt"),
    ):
        message = run(stage, offline, *OFFLINE, "histories=tiny", *options).refusal
        assert "cannot be read" in message and "weights_only" not in message, (stage, options)
    assert not mark.exists()


def test_a_reward_plugin_is_recorded_compared_and_run_by_who_learns_from_it_alone(root: Path, tmp_path: Path) -> None:
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
    for _ in range(2):
        plugin.write_text(text.replace("2", "3"))
        assert option in refusal("train_ilql", root, option)
        plugin.unlink()
        assert option in refusal("train_ilql", root, option)
        assert "critic.reward_plugin" in refusal("train_ilql", root)
        plugin.write_text(text)
        go("train_ilql", root, option)
        (root / "logs/tiny/ilql/finished.json").unlink()
