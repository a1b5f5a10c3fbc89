"""Programs of offline RL: critics from histories, policies from critics, and both in context."""

import json
import shutil
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
from harness import TINY, files_of, kill_late, results_of
from installed import needs

import icrl
from icrl.app.compose import compose_config
from icrl.config.modules import command_of
from icrl.contracts import ConfigError, PipelineError
from icrl.data.windows import Mixture
from icrl.envs import make_env
from icrl.extensions.offline_rl import pictures
from icrl.extensions.offline_rl.acting import offline_kind
from icrl.extensions.offline_rl.curves import write_value_curves
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.runs import checkpoint
from icrl.runs.files import read_json, write_json

CPU = torch.device("cpu")
SNAPSHOTS = ("checkpoints.snapshot_interval=8",)  # every two updates of 4 windows
CRITIC = ("policy.model=critic", "policy.advantage_scale=1")
GOLDEN = {
    "ilql.norm": 47.324206728479695,
    "ilql.largest": 2.8430546525687106,
    "awr.norm": 12.6154002622663,
    "awr.largest": 2.837729684766851,
}
GROUPS = ("encoder", "decoder", "critic", "awr")  # that the programs of the core lack


def read_by(stage: str, *options: str) -> list[str]:
    """Those of the `options` that a stage has."""
    return [one for one in options if stage in ("train_ilql", "extract_policy") or not one.startswith(GROUPS)]


def go(stage: str, root: Path, *options: str) -> str:
    return harness.done(stage, root, *read_by(stage, *options))


def refusal(stage: str, root: Path, *options: str) -> str:
    return harness.refusal(stage, root, *read_by(stage, *options))


@pytest.fixture(scope="module")
def critics(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run with a critic and an extracted policy; only to be read. Truncations are drawn, dropout
    is on, targets move between updates."""
    root = Path(shutil.copytree(finished, tmp_path_factory.mktemp("critics") / "root"))
    for stage in ("train_ilql", "extract_policy"):
        go(stage, root, *SNAPSHOTS)
    return root


@pytest.fixture
def offline(critics: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(critics, tmp_path / "root"))


def newest(root: Path, name: str) -> dict[str, Any]:
    found = checkpoint.load_newest(root / "logs" / name, "last", CPU)
    assert found is not None
    return found[0]


def test_a_tiny_run_has_the_recorded_numbers(critics: Path) -> None:
    found = {}
    for folder in ("ilql", "awr"):
        model = newest(critics, f"tiny/{folder}")["model"]
        norms = [float(one.double().norm()) for one in model.values() if one.is_floating_point()]
        found |= {f"{folder}.norm": sum(norms), f"{folder}.largest": max(norms)}
    assert found == pytest.approx(GOLDEN, rel=0.01)


# ---- numbers, interruptions and snapshots


@pytest.mark.parametrize(("stage", "folder"), [("train_ilql", "ilql"), ("extract_policy", "awr")])
def test_an_interrupted_program_continues_to_the_same_bits(critics, offline, stage, folder):
    kill_late(offline / "logs/tiny" / folder, 4)
    go(stage, offline, *SNAPSHOTS)
    assert results_of(offline) == results_of(critics)
    before = files_of(offline)
    assert "all 6 updates of tiny are done" in go(stage, offline, *SNAPSHOTS)
    assert files_of(offline) == before


def test_a_snapshot_is_played_while_its_run_goes_on(offline):
    logs = offline / "logs/tiny"
    (logs / "ilql/finished.json").unlink()
    go("evaluate", offline, *CRITIC, "evaluation.checkpoint=2")
    (found,) = logs.glob("evaluation*-update=2/results.json")
    assert read_json(found)["checkpoint"] == read_json(logs / "ilql/snapshot-000000002.json")["state_sha256"]


@pytest.mark.parametrize("preset", ["iql", "cql"])
def test_every_preset_trains(root, preset):
    """Two trunks, and no values of their own. `test_critic` plays them."""
    short = ("trainer.num_iterations=2", "trainer.evaluate=false", "evaluation.checkpoint=last")
    go("train_ilql", root, "name=new", "run=new", "histories=tiny", f"critic={preset}", *short)


@needs("exported")
def test_exports_of_critics_are_refused(offline):
    for model in ("gpt", "critic"):
        message = refusal("export_model", offline, f"policy.model={model}", "policy.advantage_scale=1")
        assert "only a sequence model on its own can be exported" in message


def test_extracted_policies_are_loaded_and_critics_are_not(critics: Path) -> None:
    assert icrl.load(critics / "logs/tiny", model="awr").act([4]).shape == (1,)
    for model, told in (
        ("critic", "a critic acts only in `evaluate`"),
        ("ilql", "policy.model=ilql .* gpt, finetuned"),
    ):
        with pytest.raises(PipelineError, match=told):
            icrl.load(critics / "logs/tiny", model=model)


def test_pictures_show_the_batches_that_the_policy_learned_from(offline, monkeypatch):
    options = [*TINY, f"root={offline}"]
    config, drawn, whole = compose_config(OfflineConfig, options), [], Mixture.batch
    logs = offline / "logs/tiny"
    monkeypatch.setattr(Mixture, "batch", lambda *asked: drawn.append(asked[1:]) or whole(*asked))
    assert pictures.write_weight_plot(config) == logs / "awr" / "weights.png"
    assert drawn == [(config.seed, update, 4) for update in range(pictures.NUM_BATCHES)]
    assert write_value_curves(config) == logs / "ilql" / "training.png"
    for option, named in (("awr.inverse_temperature=1", "awr.inverse"), ("name=other", "extract")):
        with pytest.raises(ConfigError, match=named):
            pictures.write_weight_plot(compose_config(OfflineConfig, [*options, option]))


def test_a_policy_is_of_one_critic(offline):
    """Whether it is finished or not."""
    finished, critic = offline / "logs/tiny/awr/finished.json", offline / "logs/tiny/ilql"
    shutil.rmtree(critic)
    assert "no finished training" in refusal("extract_policy", offline)
    go("train_ilql", offline, "trainer.num_iterations=4", "trainer.evaluate=false", "evaluation.checkpoint=last")
    assert "another critic" in refusal("extract_policy", offline)
    with pytest.raises(ConfigError, match="another critic"):
        pictures.write_weight_plot(compose_config(OfflineConfig, [*TINY, f"root={offline}"]))
    finished.unlink()
    assert "another critic" in refusal("extract_policy", offline)


def test_critics_of_other_histories_are_refused(offline):
    sidecar = offline / "logs/tiny/ilql/last-000000006.json"
    (offline / "logs/tiny/awr/finished.json").unlink()
    about = read_json(sidecar)
    about["description"]["histories"][0]["sha256"] = "0"
    write_json(sidecar, about)
    for stage, option in (("extract_policy", "seed=0"), ("evaluate", "policy.advantage_scale=1")):
        assert "different histories" in refusal(stage, offline, option)


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
        go("evaluate", offline, *options)
    told = {json.dumps(numbers(offline, suffix), sort_keys=True) for suffix in ("", *suffixes)}
    assert len(told) == 1 + len(suffixes)
    for folder in ("ilql", "evaluation"):  # without a scale no critic is read
        shutil.rmtree(offline / "logs/tiny" / folder)
    go("evaluate", offline, "policy.advantage_scale=0")
    assert numbers(offline) == numbers(critics)


def test_a_model_is_guided_by_the_slow_copy_at_its_scale(critics: Path) -> None:
    config = compose_config(OfflineConfig, [*TINY, f"root={critics}", "policy.advantage_scale=3"])
    kind = offline_kind(config.policy, config.finetune)
    assert kind
    opened = kind.open(config, CPU)
    guided, weights = opened.make(config, make_env(config.env).spec, CPU), newest(critics, "tiny/ilql")["model"]
    sidecar = read_json(critics / "logs/tiny/ilql/last-000000006.json")
    assert opened.checksum.endswith(f"+{sidecar['state_sha256']}") and guided.scale == 3.0
    assert all(torch.equal(value, weights[f"target.{name}"]) for name, value in guided.critic.state_dict().items())


def test_a_player_that_is_not_there_or_was_trained_with_other_options(offline):
    for folder, program, options in (("ilql", "train_ilql", CRITIC), ("awr", "extract_policy", ["policy.model=awr"])):
        finished = offline / "logs/tiny" / folder / "finished.json"
        finished.rename(offline / "finished.json")
        message = refusal("evaluate", offline, *options)
        assert str(finished.parent) in message and command_of(program) in message
        (offline / "finished.json").rename(finished)
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
    go("evaluate", root, option, *CRITIC)
    assert not mark.exists()
    plugin.write_text(text.replace("2", "3"))
    for _ in range(2):  # finished, and not
        assert option in refusal("train_ilql", root, option)
        assert "critic.reward_plugin" in refusal("train_ilql", root)
        (root / "logs/tiny/ilql/finished.json").unlink(missing_ok=True)
