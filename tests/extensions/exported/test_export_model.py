"""An exported model acts as the one it came from, anywhere, and damaged files are refused."""

import gymnasium
import numpy as np
import pytest
import torch
from harness import DAMAGES, TINY, done, file_size_limit, files_of, refusal, run
from installed import needs
from safetensors.torch import load_file

import icrl
from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.exported.folder import save
from icrl.runs.checkpoint import load_newest
from icrl.runs.files import only_writer, read_json, sha256, write_atomically, write_json

ROOM = {"goal": (0, 1), "size": 3, "max_episode_steps": 4}


@needs("as_gymnasium")
def test_it_acts_as_the_run_does(root):
    """After the run is gone; the weights are those of the checkpoint, and the card has the results."""
    done("export_model", root)
    folder = root / "logs/tiny/export"
    saved = load_newest(root / "logs/tiny/gpt", "best", torch.device("cpu"))
    weights = load_file(folder / "model.safetensors")
    assert saved and weights.keys() == saved[0]["model"].keys()
    assert all(weight.equal(saved[0]["model"][name]) for name, weight in weights.items())
    env = gymnasium.make("icrl:icrl/DarkRoom-v0", **ROOM)
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    expected = icrl.rollout(icrl.load(root / "logs/tiny", checkpoint="best", seed=3), env, num_episodes=6)
    with pytest.raises(ConfigError, match="is not a run and has only one model"):
        icrl.load(folder, checkpoint="best")
    elsewhere = folder.rename(root / "taken_along")
    np.testing.assert_array_equal(icrl.rollout(icrl.load(elsewhere, seed=3), env, num_episodes=6), expected)
    card = (elsewhere / "README.md").read_text()
    assert card.startswith("---\n") and "env.name=dark_room" in card
    assert "model, held-out tasks" in card and f"{sum(map(torch.numel, weights.values())):,} parameters" in card


def test_a_card_says_that_a_model_learned_in_trials(root):
    trials = ("finetune.trial_steps=8", "finetune.num_iterations=2", "finetune.num_mini_batches=3")
    done("finetune", root, *trials)
    done("export_model", root, *trials, "policy.model=finetuned")
    (card,) = (root / "logs/tiny").glob("export*/README.md")
    learned = "| learned | first to imitate, then policy gradients over 2 rounds of trials of 8 steps |"
    assert learned in card.read_text()


def test_a_card_without_an_evaluation_shows_no_results(root):
    done("export_model", root, "name=unseen", "run=tiny", "histories=tiny")
    assert "## Results" not in (root / "logs/unseen/export/README.md").read_text()


@pytest.mark.parametrize("options", [("policy.model=nobody",), ("run=nobody",)])
def test_refused(root, options):
    told = refusal("export_model", root, *options, preset=TINY)
    assert options[0].split("=")[0] in told or "no finished training" in told


def test_an_export_that_cannot_be_written_leaves_the_one_before(root):
    done("export_model", root)
    before = files_of(root / "logs/tiny/export")
    with file_size_limit(500):
        refused = run("export_model", root, "evaluation.checkpoint=last").refusal
    assert "model.safetensors" in refused and files_of(root / "logs/tiny/export") == before
    with only_writer(root / "logs/tiny"):
        assert "another run is writing to" in run("export_model", root).refusal
    icrl.load(root / "logs/tiny/export")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_damaged_files_are_refused(root, name):
    done("export_model", root)
    path = root / "logs/tiny/export" / name
    whole = path.read_bytes()
    damages = DAMAGES | ({"missing": None} if name == "config.json" else {})
    for damage, do in damages.items():
        path.write_bytes(do(whole)) if do else path.unlink()
        with pytest.raises(PipelineError, match=rf"{path.parent}.*export the model again"):
            icrl.load(path.parent)
            pytest.fail(damage)
    path.write_bytes(whole)
    icrl.load(path.parent)


def test_weights_that_are_no_file_of_weights_are_one_error(root):
    """Although they have the checksum that the description says."""
    done("export_model", root)
    path = root / "logs/tiny/export/model.safetensors"
    about = path.with_name("config.json")
    for content in (b"", b"\xff" * 100, b"\x08" + b"\0" * 7 + b"{}      ", b"\xff" * 7 + b"\x7f{"):
        write_atomically(path, content)
        write_json(about, read_json(about) | {"weights_sha256": sha256(path)})
        with pytest.raises(PipelineError, match=str(path.parent)):
            icrl.load(path.parent)


def test_a_loaded_policy_is_saved(finished, tmp_path):
    policy = icrl.load(finished / "logs/tiny", seed=3)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/model.safetensors.partial").touch()  # of a save that was killed
    folder = save(policy, tmp_path / "saved")
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    again = icrl.load(folder, seed=3)
    assert again.policy.model.state_dict().keys() == policy.policy.model.state_dict().keys()
    assert [again.act([4]).tolist(), again.config] == [policy.act([4]).tolist(), policy.config]
    save(again, folder)  # a model may be replaced, other files not
    (tmp_path / "mine").touch()
    for other, said in ((tmp_path, "holds mine, saved, and no model"), (folder / "README.md", "is a file")):
        with pytest.raises(ConfigError, match=said):
            save(policy, other)
