"""Program of the fine-tuning in context: interruptions, its place among the programs, refusals."""

import shutil
from functools import partial
from pathlib import Path

import harness
import pytest
import torch
from harness import TINY, files_of, kill_late, results_of, run
from installed import needs
from toy import assert_same, steps_of, values_of, weights_of

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.programs import finetune
from icrl.runs.distributed import process_group
from icrl.runs.files import read_json

# Two iterations of three updates each; checkpoints after updates 2, 4 and 6 are amid both and at the end.
TRIALS = (
    *("finetune.trial_steps=8", "finetune.num_iterations=2", "finetune.num_mini_batches=3"),
    "checkpoints.keep_last=3",
)
OF_TINY = ("run=tiny", "histories=tiny")
NEW = ("name=other", *OF_TINY)
go = partial(harness.done, preset=(*TINY, *TRIALS))
refusal = partial(harness.refusal, preset=(*TINY, *TRIALS))


@pytest.fixture(scope="module")
def tuned(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run with a fine-tuned model; only to be read."""
    root = Path(shutil.copytree(finished, tmp_path_factory.mktemp("tuned") / "root"))
    go("finetune", root)
    return root


@pytest.fixture
def again(tuned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tuned, tmp_path / "root"))


def weights(root: Path, name: str) -> dict[str, torch.Tensor]:
    return weights_of(root / "logs" / name)


def test_an_interrupted_run_continues_to_the_same_bits(tuned, again):
    """Amid an iteration whose trials were played with other weights than those at the start."""
    kill_late(again / "logs/tiny/finetuned", 4)
    go("finetune", again)
    assert results_of(again) == results_of(tuned)
    before = files_of(again)
    assert "all 6 updates of tiny are done" in go("finetune", again)
    assert files_of(again) == before


@needs("scaling")
def test_two_processes_train_what_one_trains(again):
    """Up to rounding; amid an iteration they continue to the same bits."""
    options = ("device.amp_dtype=none",)
    for name, size in (("alone", 1), ("shared", 2)):
        given = (*TINY, *TRIALS, *options, f"root={again}", f"name={name}", *OF_TINY)
        process_group().in_ranks(finetune.main, load_config(given), size)
    alone, shared = (weights(again, f"{name}/finetuned") for name in ("alone", "shared"))
    torch.testing.assert_close(shared, alone, rtol=0, atol=1e-5)
    for tag in ("loss", "return", "ratio_change", "gradient_norm"):
        ours, theirs = (values_of(again / "logs" / name / "finetuned", f"train/{tag}") for name in ("shared", "alone"))
        assert ours == pytest.approx(theirs, abs=1e-5), tag
    kill_late(again / "logs/shared/finetuned", 4)
    process_group().in_ranks(finetune.main, load_config(given), 2)
    assert_same(weights(again, "shared/finetuned"), shared)


@needs("scaling")
def test_processes_that_cannot_share_the_streams_are_refused(root):
    config = load_config([*TINY, *TRIALS, f"root={root}", "finetune.num_streams=3"])
    with pytest.raises(
        ConfigError, match="finetune.num_streams=3: each of 2 processes plays an equal share of the 9 streams"
    ):
        process_group().in_ranks(finetune.main, config, 2)


def test_it_starts_from_the_model_of_the_run_and_stays_there_without_a_rate(again):
    gpt, tuned = weights(again, "tiny/gpt"), weights(again, "tiny/finetuned")
    assert not all(torch.equal(gpt[name], tuned[name]) for name in gpt)
    go("finetune", again, "finetune.learning_rate=0", "name=still", *OF_TINY)
    assert_same(weights(again, "still/finetuned"), gpt)


def test_from_random_weights_no_model_is_needed(again):
    shutil.rmtree(again / "logs/tiny/gpt")
    assert "no finished training" in refusal("finetune", again, *NEW)
    go("finetune", again, "finetune.start=none", "name=scratch", *OF_TINY)
    assert max(steps_of(again / "logs/scratch/finetuned")) == 6


def test_it_is_evaluated_like_an_extracted_policy(again):
    go("evaluate", again, "policy.model=finetuned", "evaluation.checkpoint=last", *NEW)
    results = read_json(again / "logs/other/evaluation-policy=finetuned/results.json")
    assert results["checkpoint"] == read_json(again / "logs/tiny/finetuned/last-000000006.json")["state_sha256"]
    assert "finetune.bonus" in refusal("evaluate", again, "policy.model=finetuned", "finetune.bonus=0.5")
    folder = again / "logs/tiny/finetuned"
    (folder / "finished.json").unlink()
    message = refusal("evaluate", again, "policy.model=finetuned")
    assert f"no finished training in {folder}" in message and "`icrl finetune`" in message


def test_a_run_goes_on_with_its_own_options_and_from_its_own_start(again):
    (again / "logs/tiny/finetuned/finished.json").unlink()
    assert "finetune.discount=0.96" in refusal("finetune", again, "finetune.discount=0.3")
    assert "model.embed_dim=8" in refusal("finetune", again, "model.embed_dim=4", "name=new", *OF_TINY)
    shutil.rmtree(again / "logs/tiny/gpt")
    harness.done("train_gpt", again, "trainer.num_iterations=4", "trainer.evaluate=false", "evaluation.checkpoint=last")
    assert "started from another model" in refusal("finetune", again)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("model.obs_encoding=cell", "needs model.obs_encoding=coordinates, smooth or framed, not cell"),
        ("env.permute_actions=true", "env.name=dark_room has no other rooms with these options"),
        ("finetune.room_sizes=[5,20]", "must be at most model.max_size=17"),
        ("finetune.num_mini_batches=21", "finetune.num_mini_batches=21: must be at most 20, the streams of all tasks"),
    ],
)
def test_the_pipeline_refuses_trials_that_cannot_be_before_any_work(tmp_path, option, why):
    rooms = ("policy.model=finetuned", "finetune.num_rooms=2", "finetune.trial_steps=8")
    outcome = run("pipeline", tmp_path, *rooms, option)
    assert why in outcome.refusal and not any(tmp_path.iterdir())
