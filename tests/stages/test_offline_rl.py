"""Offline RL as programs: critics from histories, policies from critics, and both in context."""

import json
import shutil
import signal
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import TINY, ended, files_of, results_of, run, start

from icrl.config.compose import load_config
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
LONG = ("trainer.num_iterations=60", "checkpoints.checkpoint_interval=7", "evals.eval_interval=60")
SHORT = ("evaluation.ablations=false", "evaluation.temperatures=[]", "evaluation.num_streams=1")


def go(stage: str, root: Path, *options: str) -> str:
    outcome = run(stage, root, *OFFLINE, *options)
    assert outcome.code == 0, outcome
    return outcome.out


def refusal(stage: str, root: Path, *options: str) -> str:
    """Of a command that leaves all files of the run as they were."""
    before = files_of(root)
    message = run(stage, root, *OFFLINE, *options).refusal
    assert files_of(root) == before
    return message


@pytest.fixture(scope="session")
def critics(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run with a critic and an extracted policy; only to be read."""
    root = Path(shutil.copytree(finished, tmp_path_factory.mktemp("critics") / "root"))
    go("train_ilql", root, *SNAPSHOTS)
    go("extract_policy", root)
    return root


@pytest.fixture
def offline(critics: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(critics, tmp_path / "root"))


def newest(root: Path, name: str, kind: str = "last") -> dict[str, Any]:
    found = checkpoint.load_newest(root / "logs" / name, kind, CPU)
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


# ---- interruptions


def test_a_killed_program_goes_on_to_the_same_bits(finished: Path, tmp_path: Path) -> None:
    roots = [Path(shutil.copytree(finished / "histories", tmp_path / name / "histories")).parent for name in "ab"]
    for stage, folder in (("train_ilql", "ilql"), ("extract_policy", "awr")):
        go(stage, roots[0], *LONG)
        process = start(stage, roots[1], *OFFLINE, *LONG)
        file = roots[1] / f"logs/tiny/{folder}/last-000000007.json"
        while not file.exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        assert ended(process).code == -signal.SIGKILL
        assert not (roots[1] / f"logs/tiny/{folder}/finished.json").exists()
        go(stage, roots[1], *LONG)
    assert results_of(roots[1]) == results_of(roots[0])


def test_a_finished_program_does_nothing_more(offline: Path) -> None:
    before = files_of(offline)
    for stage in ("train_ilql", "extract_policy"):
        assert "all 6 updates of tiny are done" in go(stage, offline, *SNAPSHOTS)
    assert files_of(offline) == before


# ---- snapshots


def test_a_snapshot_is_all_that_is_needed_to_play(offline: Path, tmp_path: Path) -> None:
    """Moved elsewhere, and its run gone."""
    snapshots = Path(shutil.move(offline / "logs/tiny/ilql", tmp_path / "elsewhere"))
    shutil.rmtree(offline)
    found = sorted(path.name for path in snapshots.glob("snapshot-*.pt"))
    assert found == [f"snapshot-00000000{update}.pt" for update in (2, 4, 6)]
    state, about = checkpoint.load(snapshots / "snapshot-000000004.json", CPU)
    config = load_config(TINY)
    env = make_env(config.env)
    critic = make_critic(config, env.spec)
    critic.load_state_dict(state["model"])
    assert critic.updates == 4
    assert EnvSpec.of(about["description"]["env"]) == env.spec
    policy = GPTPolicy(Guided(None, critic.eval().target, 1.0), 1.0, 1.0, 0.75)
    played, _ = play_episodes(policy, env, env.all_tasks()[:2], 2, 3, seed=0)
    assert played.returns.shape[-1] == 3


@pytest.mark.parametrize("index", [2, 4, -1])
def test_from_a_snapshot_a_new_run_comes_to_the_end_of_the_old_one(offline: Path, index: int) -> None:
    """To the bit, where both have as many updates."""
    snapshots = Path(shutil.copytree(offline / "logs/tiny/ilql", offline / "kept"))
    for path in (*snapshots.glob("last-*"), *(snapshots.glob("snapshot-*6.*") if index < 0 else ())):
        path.unlink()
    options = (f"critic.initial_model_prefix={snapshots}", f"critic.initial_model_index={index}")
    go("train_ilql", offline, "name=new", "histories=tiny", *options)
    one, other = newest(offline, "tiny/ilql"), newest(offline, "new/ilql")
    for part in ("step", "model", "updater", "generators"):
        assert same(one[part], other[part]), part
    assert other["model"]["updates"] == 6


def test_from_a_snapshot_with_a_new_optimizer(offline: Path) -> None:
    prefix = ("name=new", "histories=tiny", f"critic.initial_model_prefix={offline}/logs/tiny/ilql")
    options = (*prefix, "critic.initial_model_index=4")
    go("train_ilql", offline, *options, "optimizer.initialize=true")
    steps = {float(state["step"]) for state in newest(offline, "new/ilql")["updater"]["optimizer"]["state"].values()}
    assert steps == {2.0}
    options = (*options[1:], "name=other", "optimizer=sgd", "optimizer.learning_rate=0.01")
    assert "optimizer.initialize=true" in run("train_ilql", offline, *OFFLINE, *options).refusal
    go("train_ilql", offline, *options, "optimizer.initialize=true")


def test_snapshots_that_cannot_be_gone_on_from(offline: Path, tmp_path: Path) -> None:
    def message(*options: str) -> str:
        return run("train_ilql", offline, *OFFLINE, "name=new", "histories=tiny", *options).refusal

    prefix = f"critic.initial_model_prefix={offline}/logs/tiny/ilql"
    assert "has no snapshots" in message(f"critic.initial_model_prefix={tmp_path}/nowhere")
    wrong = message(prefix, "critic.initial_model_index=3")
    assert "critic.initial_model_index=3" in wrong and "snapshots 2, 4, 6" in wrong
    assert "train_gpt" in message(f"critic.initial_model_prefix={offline}/logs/tiny/gpt")
    assert prefix in message(prefix, "encoder.embed_dim=16")
    assert prefix in message(prefix, "critic.separate_value=true")
    late = message(prefix, "trainer.num_iterations=5")
    assert prefix in late and "trainer.num_iterations=5" in late
    (path,) = (offline / "logs/tiny/ilql").glob("snapshot-*2.pt")
    path.write_bytes(path.read_bytes()[:-1])
    assert path.name in message(prefix, "critic.initial_model_index=2")
    go("train_ilql", offline, "name=new", "histories=tiny", prefix)


# ---- models to start from


def first_state(root: Path, *options: str) -> dict[str, torch.Tensor]:
    """A new critic before its first update."""
    go(
        "train_ilql",
        root,
        "name=new",
        "histories=tiny",
        "optimizer.learning_rate=0",
        "trainer.num_iterations=1",
        *options,
    )
    return newest(root, "new/ilql")["model"]


def of(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def test_a_new_critic_starts_from_another(offline: Path) -> None:
    (path,) = (offline / "logs/tiny/ilql").glob("last-000000006.pt")
    then = newest(offline, "tiny/ilql")["model"]
    now = first_state(offline, f"critic.initial_model={path}", "critic.target_update_rate=0.5")
    assert same(of(now, "online."), of(then, "online."))
    moved = {
        name: value for name, value in of(now, "target.").items() if not torch.equal(value, then[f"target.{name}"])
    }
    assert not moved or now["updates"] % 2 == 0


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("source", ["gpt", "ilql", "awr"])
def test_a_new_critic_starts_from_a_trunk(offline: Path, source: str, separate: bool) -> None:
    (path,) = (offline / f"logs/tiny/{source}").glob("last-000000006.pt")
    then = newest(offline, f"tiny/{source}")["model"]
    trunk = of(then, "target.trunk.") if source == "ilql" else then
    trunk = {name: value for name, value in trunk.items() if not name.startswith("policy_head.")}
    now = first_state(offline, f"encoder.load_from={path}", f"critic.separate_value={separate}".lower())
    for prefix in ("online.trunk.", "target.trunk.", *(["online.value_trunk."] if separate else [])):
        assert same(of(now, prefix), trunk), prefix
    assert not torch.equal(
        now["online.q_heads.0.0.weight"], newest(offline, "tiny/ilql")["model"]["online.q_heads.0.0.weight"]
    )


def test_a_new_critic_starts_from_heads(offline: Path) -> None:
    (path,) = (offline / "logs/tiny/ilql").glob("last-000000006.pt")
    then = newest(offline, "tiny/ilql")["model"]
    now = first_state(offline, f"decoder.load_from={path}")
    for name, value in of(now, "online.").items():
        trained = any(torch.equal(value, then[f"{part}.{name}"]) for part in ("online", "target"))
        assert trained == ("_head" in name) or value.unique().numel() == 1, name
        assert torch.equal(value, now[f"target.{name}"])


def test_a_policy_starts_from_a_trunk(offline: Path) -> None:
    options = ("awr.experiment_name=other", "optimizer.learning_rate=0")
    for source in ("gpt", "ilql"):
        (path,) = (offline / f"logs/tiny/{source}").glob("last-000000006.pt")
        shutil.rmtree(offline / "logs/tiny/other", ignore_errors=True)
        go("extract_policy", offline, *options, f"awr.initial_encoder={path}")
        then, now = newest(offline, f"tiny/{source}")["model"], newest(offline, "tiny/other")["model"]
        trunk = of(then, "target.trunk.") if source == "ilql" else then
        for name, value in trunk.items():
            assert torch.equal(value, now[name]) != name.startswith("policy_head."), name


def test_models_that_do_not_fit(offline: Path, tmp_path: Path) -> None:
    logs = offline / "logs/tiny"
    gpt, critic = (next((logs / name).glob("last-000000006.pt")) for name in ("gpt", "ilql"))

    def message(*options: str, stage: str = "train_ilql") -> str:
        name = "name=new" if stage == "train_ilql" else "awr.experiment_name=new"
        return run(stage, offline, *OFFLINE, name, "histories=tiny", *options).refusal

    for option in ("critic.initial_model", "encoder.load_from", "decoder.load_from"):
        for wrong in (tmp_path / "no.pt", tmp_path, critic.with_suffix(".json")):
            assert f"{option}={wrong}" in message(f"{option}={wrong}")
        bare = Path(shutil.copy(critic, tmp_path / "bare.pt"))
        assert "bare.pt" in message(f"{option}={bare}")
        smaller = message(f"{option}={critic}", "encoder.embed_dim=4", "decoder.ff_dim=5")
        assert f"{option}={critic}" in smaller and "size mismatch" in smaller
    for option in ("critic.initial_model", "decoder.load_from"):
        refused = message(f"{option}={gpt}")
        assert f"{option}={gpt}" in refused and "train_gpt" in refused
    assert "awr.initial_encoder=" in message("awr.initial_encoder=no.pt", stage="extract_policy")
    go("train_ilql", offline, "name=small", "histories=tiny", "encoder.embed_dim=4", "trainer.num_iterations=1")
    (small,) = (offline / "logs/small/ilql").glob("last-000000001.pt")
    assert "size mismatch" in message(f"awr.initial_encoder={small}", stage="extract_policy")
    agents = next((offline / "logs/tiny/source").glob("last-*.pt"))
    for option, stage in (
        *((option, "train_ilql") for option in ("critic.initial_model", "encoder.load_from", "decoder.load_from")),
        ("awr.initial_encoder", "extract_policy"),
    ):
        refused = message(f"{option}={agents}", stage=stage)
        assert refused.startswith(f"{option}={agents}: is a model of train_agents, and must be one of "), refused


def test_models_that_know_held_out_tasks(offline: Path) -> None:
    """Under another split of the same world; and those that were set aside there may be learned from here."""
    split = ("name=new", "tasks.seed=1")
    assert run("train_agents", offline, *split).code == 0
    logs = offline / "logs/tiny"
    gpt, critic = (next((logs / name).glob("last-000000006.pt")) for name in ("gpt", "ilql"))

    def message(option: str, stage: str = "train_ilql") -> str:
        return run(stage, offline, *OFFLINE, *split, option).refusal

    for option in (
        *(
            f"critic.initial_model={critic}",
            f"decoder.load_from={critic}",
            f"critic.initial_model_prefix={critic.parent}",
        ),
        *(f"encoder.load_from={path}" for path in (gpt, critic)),
    ):
        refused = message(option)
        assert refused.startswith(option) and "held out or set aside" in refused and "tasks.seed" in refused, refused
    go("train_ilql", offline, *split)
    assert "held out or set aside" in message(f"awr.initial_encoder={gpt}", "extract_policy")


# ---- extraction


def test_epochs_are_counted_in_windows(offline: Path) -> None:
    out = go("extract_policy", offline, "awr.experiment_name=other", "awr.num_epochs=1")
    windows = sum(
        int(line.split(" windows")[0].replace(",", "")) for line in out.splitlines() if " windows of 8" in line
    )
    expected = -(-windows // 4)
    assert expected > 6
    assert newest(offline, "tiny/other")["step"] == expected
    assert read_json(offline / "logs/tiny/other/finished.json")["updates"] == expected


def test_a_run_that_is_there_is_gone_on_with_only_if_asked(offline: Path) -> None:
    assert "awr.resume=false" in refusal("extract_policy", offline, "awr.resume=false")
    go("extract_policy", offline, "awr.resume=false", "awr.experiment_name=other")
    assert "awr.resume=false" in refusal("extract_policy", offline, "awr.resume=false", "awr.experiment_name=other")
    assert "are done" in go("extract_policy", offline, "awr.experiment_name=other")


def test_what_was_refused_is_no_earlier_run(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(finished / "histories", root / "histories")
    for _ in range(2):
        assert "no finished training" in run("extract_policy", root, *OFFLINE, "awr.resume=false").refusal


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
    (sidecar,) = (offline / "logs/tiny/ilql").glob("last-000000006.json")
    before = read_json(sidecar)
    for group, key, value in (
        *(("env", "max_episode_steps", 5), ("tasks", "seed", 3), ("model", "context_len", 7)),
        *(("data", "keep_every", [2]), ("encoder", "num_heads", 1), ("critic", "expectile", 0.7)),
    ):
        about = deepcopy(before)
        about["description"]["config"][group][key] = value
        write_json(sidecar, about)
        (offline / "logs/tiny/awr/finished.json").unlink(missing_ok=True)
        for stage, option in (("extract_policy", "seed=0"), ("evaluate", "policy.advantage_scale=1")):
            message = run(stage, offline, *OFFLINE, option).refusal
            assert f"{group}.{key}={value}" in message, message
    about = deepcopy(before)
    about["description"]["histories"][0]["sha256"] = "0"
    write_json(sidecar, about)
    for stage, option in (("extract_policy", "seed=0"), ("evaluate", "policy.advantage_scale=1")):
        assert "different histories" in run(stage, offline, *OFFLINE, option).refusal


# ---- play


def numbers(root: Path, suffix: str = "") -> Any:
    results = read_json(root / f"logs/tiny/evaluation{suffix}/results.json")
    return {key: value for key, value in results.items() if key not in ("config", "checkpoint")}


def test_without_a_scale_no_critic_is_read(critics: Path, offline: Path) -> None:
    """Neither one that is there nor one that is broken or gone; and the model plays as it did before there were any."""
    for change in (lambda folder: None, lambda folder: next(folder.glob("last-*.pt")).write_bytes(b""), shutil.rmtree):
        change(offline / "logs/tiny/ilql")
        shutil.rmtree(offline / "logs/tiny/evaluation")
        go("evaluate", offline, "policy.advantage_scale=0")
        assert numbers(offline) == numbers(critics)


def test_each_player_has_results_of_its_own(offline: Path) -> None:
    suffixes = {
        "-advantage=3.0": ("policy.advantage_scale=3",),
        "-policy=awr": ("policy.model=awr",),
        "-policy=awr-advantage=3.0": ("policy.model=awr", "policy.advantage_scale=3"),
        "-policy=critic-advantage=3.0": ("policy.model=critic", "policy.advantage_scale=3"),
    }
    for options in suffixes.values():
        go("evaluate", offline, *options, *SHORT)
        before = files_of(offline)
        go("evaluate", offline, *options, *SHORT)
        assert files_of(offline) == before
    found = {suffix: numbers(offline, suffix) for suffix in ("", *suffixes)}
    told = [json.dumps(one, sort_keys=True) for one in found.values()]
    assert len(set(told)) == len(found)


def test_a_player_that_is_not_there(offline: Path) -> None:
    for name, program, options in (
        ("ilql", "train_ilql", ("policy.advantage_scale=1",)),
        ("ilql", "train_ilql", ("policy.model=critic", "policy.advantage_scale=1")),
        ("awr", "extract_policy", ("policy.model=awr",)),
    ):
        folder = offline / "logs/tiny" / name
        (folder / "finished.json").rename(offline / "finished.json")
        message = refusal("evaluate", offline, *options)
        assert f"no finished training in {folder}" in message and f"python -m src.{program}" in message
        (offline / "finished.json").rename(folder / "finished.json")


def test_options_of_a_player_must_be_those_it_was_trained_with(offline: Path) -> None:
    critic = ("policy.model=critic", "policy.advantage_scale=1")
    assert "critic.expectile" in refusal("evaluate", offline, *critic, "critic.expectile=0.7")
    assert "awr.advantage_threshold" in refusal("evaluate", offline, "policy.model=awr", "awr.advantage_threshold=3")
    assert "critic.expectile" in refusal("train_ilql", offline, "critic.expectile=0.7")
    assert "awr.advantage_threshold" in refusal("extract_policy", offline, "awr.advantage_threshold=3")


def test_a_new_critic_makes_other_results(offline: Path) -> None:
    go("evaluate", offline, "policy.advantage_scale=3", *SHORT)
    shutil.rmtree(offline / "logs/tiny/ilql")
    go("train_ilql", offline, "trainer.num_iterations=4", "trainer.evaluate=false", "evaluation.checkpoint=last")
    assert "another model" in refusal("evaluate", offline, "policy.advantage_scale=3", *SHORT)


def test_of_a_critic_that_plays_the_checkpoint_counts_that_is_asked_for(offline: Path) -> None:
    """The best is of another update than the last."""
    folder = offline / "logs/tiny/ilql"
    (best,) = folder.glob("best-*.json")
    untrained = newest(offline, "tiny/ilql")
    about = read_json(best)["description"]
    for path in folder.glob("best-*"):
        path.unlink()
    untrained["model"] = {name: torch.zeros_like(value) for name, value in untrained["model"].items()}
    checkpoint.save(folder, "best", 3, untrained, about, 1)
    critic = ("policy.model=critic", "policy.advantage_scale=3", *SHORT)
    for kind in ("best", "last"):
        go("evaluate", offline, *critic, f"evaluation.checkpoint={kind}", f"name={kind}", "histories=tiny", "run=tiny")
        results = read_json(offline / f"logs/{kind}/evaluation-policy=critic-advantage=3.0/results.json")
        (sidecar,) = folder.glob("best-*.json" if kind == "best" else "last-000000006.json")
        assert results["checkpoint"] == read_json(sidecar)["state_sha256"]
    told = [
        {key: value for key, value in read_json(path).items() if key == "curves"}
        for path in sorted(offline.glob("logs/*/evaluation-policy=critic-advantage=3.0/results.json"))
    ]
    assert len(told) == 2 and told[0] != told[1]


@pytest.mark.parametrize(("stage", "folder"), [("train_ilql", "ilql"), ("extract_policy", "awr")])
def test_how_it_was_evaluated_is_part_of_a_run(offline: Path, stage: str, folder: str) -> None:
    """Finished or not: who plays, how often, and how greedily a critic acts on its advantages."""
    options = {"policy.temperature=0.5", "evals.num_eval_episodes=16"}
    if stage == "train_ilql":
        options.add("awr.inverse_temperature=3")
    for _ in range(2):
        for option in sorted(options):
            assert option.partition("=")[0] in refusal(stage, offline, option)
        (offline / "logs/tiny" / folder / "finished.json").unlink(missing_ok=True)


def test_a_policy_of_whole_batches_has_whole_batches(offline: Path) -> None:
    for option in ("awr.normalize=softmax", "awr.normalize=mean"):
        refused = refusal("extract_policy", offline, "awr.experiment_name=new", option)
        assert option in refused and "trainer.gradient_accumulation_steps=2" in refused
    go("extract_policy", offline, "awr.experiment_name=new", option, "trainer.gradient_accumulation_steps=1")


# ---- what is not run


class Exploit:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.mark,)


def spoil(path: Path, mark: Path) -> None:
    """With the right checksum beside it."""
    torch.save({"model": Exploit(mark)}, path)
    sidecar = path.with_suffix(".json")
    write_json(sidecar, read_json(sidecar) | {"state_sha256": sha256(path)})


def test_no_checkpoint_is_unpickled(offline: Path, tmp_path: Path) -> None:
    mark, logs = tmp_path / "mark", offline / "logs/tiny"
    for path in (*logs.glob("ilql/*.pt"), *logs.glob("awr/*.pt")):
        spoil(path, mark)
    (path,) = logs.glob("ilql/last-000000006.pt")
    for stage, options in (
        ("evaluate", ("policy.advantage_scale=1",)),
        ("evaluate", ("policy.model=critic", "policy.advantage_scale=1")),
        ("evaluate", ("policy.model=awr",)),
        ("extract_policy", ("awr.experiment_name=new",)),
        ("extract_policy", ("awr.experiment_name=new", f"awr.initial_encoder={path}")),
        ("train_ilql", ("name=new", f"critic.initial_model={path}")),
        ("train_ilql", ("name=new", f"critic.initial_model_prefix={path.parent}")),
        ("train_ilql", ("name=new", f"encoder.load_from={path}")),
        ("train_ilql", ("name=new", f"decoder.load_from={path}")),
    ):
        message = run(stage, offline, *OFFLINE, "histories=tiny", *options).refusal
        assert "cannot be read" in message and "weights_only" not in message, (stage, options)
    assert not mark.exists()


def test_the_text_of_a_reward_plugin_is_run_by_who_learns_from_it_alone(finished: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(finished, tmp_path / "root"))
    mark, plugin = tmp_path / "mark", tmp_path / "plugin.py"
    plugin.write_text(f"open({str(mark)!r}, 'w')\ndef get_reward(history):\n    return history.reward\n")
    option = f"critic.reward_plugin={plugin}"
    go("train_ilql", root, option)
    assert mark.exists()
    state = checkpoint.load_newest(root / "logs/tiny/ilql", "last", CPU)
    assert state is not None and state[1]["description"]["reward_plugin"]["text"] == plugin.read_text()
    mark.unlink()
    go("extract_policy", root, option)
    go("evaluate", root, option, "policy.advantage_scale=1", *SHORT)
    go("evaluate", root, option, "policy.model=critic", "policy.advantage_scale=1", *SHORT)
    assert not mark.exists()


def test_a_finished_critic_has_the_plugin_that_it_learned_from(finished: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(finished, tmp_path / "root"))
    plugin, text = tmp_path / "plugin.py", "def get_reward(history):\n    return 2 * history.reward\n"
    plugin.write_text(text)
    option = f"critic.reward_plugin={plugin}"
    go("train_ilql", root, option)
    for _ in range(2):
        plugin.write_text(text.replace("2", "3"))
        assert option in refusal("train_ilql", root, option)
        plugin.unlink()
        assert option in refusal("train_ilql", root, option)
        assert "critic.reward_plugin" in refusal("train_ilql", root)
        plugin.write_text(text)
        go("train_ilql", root, option)
        (root / "logs/tiny/ilql/finished.json").unlink()


def test_a_critic_with_two_trunks_and_no_values_of_its_own(offline: Path) -> None:
    """Every preset learns, and its critic plays."""
    for preset in ("iql", "cql"):
        options = (f"critic={preset}", "critic.horizon=episode", "name=" + preset, "histories=tiny", f"run={preset}")
        assert run("train_ilql", offline, *options).code == 0
        outcome = run("evaluate", offline, *options, "policy.model=critic", "policy.advantage_scale=1", *SHORT)
        assert outcome.code == 0, outcome
