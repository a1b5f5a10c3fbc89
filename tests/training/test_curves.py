"""What TensorBoard shows of a run: every option has its effect, nothing of it is there without, and none changes the
run."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem
from torch.utils import tensorboard
from toy import CPU, SEED, Naming, batch_at, config_of, curves, dying, model_of, run, values_of, weights_of

from icrl.config.paths import PROJECT
from icrl.contracts import Batch, ConfigError
from icrl.runs import checkpoint, summaries
from icrl.runs.distributed import Ranks
from icrl.runs.metrics import Progress
from icrl.training.board import Board
from icrl.training.noise_scale import NoiseScale

NAMES = ("0.weight", "1.weight", "1.bias", "4.weight", "4.bias")
BASE = {"train/loss", "train/accuracy", "train/gradient_norm", "train/learning_rate"}
ALL: dict[str, Any] = {
    "summarize_first_interval": True,
    "grads_and_vars": True,
    "gradient_noise_scale": "paper",
    "action_distributions": True,
    "outputs": True,
    "debug": True,
    "code_snapshots": ["README.md"],
    "profiled_iterations": 2,
}


def run_with(folder: Path, num_iterations: int = 4, **options: Any) -> Path:
    """A run without evaluations that shows every second update, unless told otherwise."""
    spaced = {"num_summaries": 0, "summary_interval": 2}
    run(folder, config_of(trainer={"num_iterations": num_iterations, "evaluate": False}, summaries=spaced | options))
    return folder


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"histograms": 0, "tensors": 0}).Reload()


def steps_of_loss(folder: Path) -> list[int]:
    return [step for step, _ in curves(folder).get("train/loss", [])]


def test_nothing_else_is_shown_unless_it_is_asked_for(tmp_path: Path) -> None:
    found = read(run_with(tmp_path))
    assert set(curves(tmp_path)) == BASE
    assert found.Tags()["histograms"] == []
    texts = {tag.removesuffix("/text_summary") for tag in found.Tags()["tensors"]}
    assert texts == {"configuration", "command", "git", "parameters"}
    assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_summaries": 0, "summary_interval": 4}, [4, 8, 12]),
        ({"num_summaries": 6, "summary_interval": 0}, [2, 4, 6, 8, 10, 12]),
        ({"num_summaries": 5, "summary_interval": 0}, [3, 6, 9, 12]),  # rounded up: at most as many
        ({"num_summaries": 99, "summary_interval": 0}, [*range(1, 13)]),
        ({"num_summaries": 0, "summary_interval": 0}, []),
        ({"num_summaries": 0, "summary_interval": 5, "summarize_first_interval": True}, [1, 2, 3, 4, 5, 10]),
        ({"num_summaries": 0, "summary_interval": 5, "summarize_first_interval": False}, [5, 10]),
    ],
    ids=str,
)
def test_points_are_spaced_as_told(tmp_path: Path, options: dict[str, Any], expected: list[int]) -> None:
    assert steps_of_loss(run_with(tmp_path, 12, **options)) == expected


@pytest.mark.parametrize(("options", "lines"), [({}, 10), ({"summarize_first_interval": True}, 10)], ids=str)
def test_ten_lines_are_logged_however_many_points_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], lines: int
) -> None:
    run_with(tmp_path, 80, **{"summary_interval": 8} | options)
    logged = [line for line in capsys.readouterr().out.splitlines() if line.startswith("train_gpt ")]
    assert len(logged) == lines
    assert all(re.search(r"\d+%  loss [\d.e-]+  accuracy [\d.]+  ", line) for line in logged)


def test_the_pace_of_writing_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def writer(*arguments: Any, **options: Any) -> tensorboard.SummaryWriter:
        made.append(options)
        return tensorboard.SummaryWriter(*arguments, **options)

    monkeypatch.setattr(summaries, "SummaryWriter", writer)
    run_with(tmp_path, flush_secs=7, max_queue=3)
    assert (made[0]["flush_secs"], made[0]["max_queue"]) == (7, 3)


def test_points_are_on_disk_before_the_checkpoint_that_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a kill after it would leave a gap. The disk is one that TensorBoard writes to only when it flushes."""
    save, seen = checkpoint.save, []

    def looked_at(folder: Path, kind: str, step: int, *arguments: Any) -> None:
        seen.append((step, [*steps_of_loss(folder)]))
        save(folder, kind, step, *arguments)

    monkeypatch.delattr(LocalFileSystem, "append")
    monkeypatch.setattr(checkpoint, "save", looked_at)
    run_with(tmp_path, 9, summary_interval=1, flush_secs=1000)
    assert seen == [(3, [1, 2, 3]), (6, [*range(1, 7)]), (9, [*range(1, 10)])]


def test_parameters_and_gradients(tmp_path: Path) -> None:
    found = read(run_with(tmp_path, grads_and_vars=True))
    both = {f"{kind}/{name}" for kind in ("value", "gradient") for name in NAMES}
    assert set(found.Tags()["histograms"]) == both
    assert set(curves(tmp_path)) - BASE == {f"parameters/{tag.replace('/', '_norm/', 1)}" for tag in both}
    for name, value in weights_of(tmp_path).items():
        assert values_of(tmp_path, f"parameters/value_norm/{name}")[-1] == pytest.approx(value.norm().item(), rel=1e-5)
        last = found.Histograms(f"value/{name}")[-1]
        assert last.step == 4
        assert last.histogram_value.num == value.numel()
        assert last.histogram_value.sum == pytest.approx(value.sum().item(), abs=1e-4)
    norms = [values_of(tmp_path, f"parameters/gradient_norm/{name}")[0] for name in NAMES]
    whole = min(values_of(tmp_path, "train/gradient_norm")[0], 1.0)  # they are the clipped ones
    assert math.hypot(*norms) == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("kind", ["alternative", "paper"])
def test_gradient_noise_scale(tmp_path: Path, kind: str) -> None:
    """The first estimate is of the model before its first update."""
    expected = NoiseScale(kind, 100).measure(
        model_of(SEED), lambda model, batch: (Naming()(model, batch)[0]["naming"], {}), batch_at(0), 1
    )
    run_with(tmp_path / "run", gradient_noise_scale=kind, summary_interval=1)
    for name, value in expected.items():
        assert values_of(tmp_path / "run", f"train/{name}")[0] == pytest.approx(value, rel=1e-5), name
    signal = values_of(tmp_path / "run", "train/gradient_signal")
    noise = values_of(tmp_path / "run", "train/gradient_noise")
    scale = values_of(tmp_path / "run", "train/gradient_noise_scale")
    assert scale[-1] == pytest.approx(noise[-1] / (signal[-1] + 1e-8 * (kind == "paper")), rel=1e-4)


def test_averages_of_the_noise_scale_survive_an_interruption(tmp_path: Path) -> None:
    config = config_of(
        trainer={"num_iterations": 8, "evaluate": False},
        summaries={"summary_interval": 2, "gradient_noise_scale": "alternative"},
        checkpoints={"checkpoint_interval": 4},
    )
    run(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", config, batches=dying(5))
    run(tmp_path / "broken", config, model_of(99))
    assert curves(tmp_path / "broken") == curves(tmp_path / "whole")


def test_the_noise_scale_needs_two_windows_in_every_process() -> None:
    config = config_of(summaries={"gradient_noise_scale": "paper"})
    Board(config, Naming(), Ranks(0, 4), None, Progress("", 1, 0, "", shown=False))
    with pytest.raises(ConfigError, match=r"gradient_noise_scale=paper .* trainer\.mini_batch_size=8 .* 5 processes"):
        Board(config, Naming(), Ranks(0, 5), None, Progress("", 1, 0, "", shown=False))


def shown_of_the_final_model(folder: Path) -> torch.Tensor:
    model = model_of(0).eval()
    model.load_state_dict(weights_of(folder))
    return model(batch_at(3).obs).detach()  # of the batch of the last update, without dropout


def test_action_distributions(tmp_path: Path) -> None:
    found = read(run_with(tmp_path, action_distributions=True))
    names = {"probability_0", "probability_1", "probability_2", "entropy"}
    assert set(curves(tmp_path)) - BASE == {f"actions/{name}" for name in names}
    assert found.Tags()["histograms"] == ["actions/entropies"]
    probabilities = shown_of_the_final_model(tmp_path).softmax(-1)
    entropy = torch.distributions.Categorical(probabilities).entropy()
    for action, mean in enumerate(probabilities.mean((0, 1)).tolist()):
        assert values_of(tmp_path, f"actions/probability_{action}")[-1] == pytest.approx(mean, abs=1e-5)
    assert values_of(tmp_path, "actions/entropy")[-1] == pytest.approx(entropy.mean().item(), abs=1e-5)
    last = found.Histograms("actions/entropies")[-1].histogram_value
    assert (last.num, last.sum) == (40, pytest.approx(entropy.sum().item(), abs=1e-4))


def test_outputs(tmp_path: Path) -> None:
    found = read(run_with(tmp_path, outputs=True))
    assert found.Tags()["histograms"] == ["outputs/logits"] and set(curves(tmp_path)) == BASE
    logits, last = shown_of_the_final_model(tmp_path), found.Histograms("outputs/logits")[-1]
    assert last.step == 4 and last.histogram_value.num == 120
    assert last.histogram_value.min == pytest.approx(logits.min().item(), abs=1e-5)
    assert last.histogram_value.sum == pytest.approx(logits.sum().item(), abs=1e-3)


def test_what_is_learned_from(tmp_path: Path) -> None:
    found = read(run_with(tmp_path, debug=True))
    assert set(found.Tags()["histograms"]) == {f"data/{name}" for name in Batch._fields}
    for name, column in batch_at(3)._asdict().items():
        last = found.Histograms(f"data/{name}")[-1]
        assert (last.step, last.histogram_value.num) == (4, 40)
        assert last.histogram_value.sum == column.sum().item()


def test_code_snapshots(tmp_path: Path) -> None:
    found = read(run_with(tmp_path, code_snapshots=["Makefile"]))
    (event,) = found.Tensors("code_snapshots/Makefile/text_summary")
    assert (PROJECT / "Makefile").read_text() in event.tensor_proto.string_val[0].decode()
    with pytest.raises(ConfigError, match=r"summaries\.code_snapshots=nothing\.py"):
        run_with(tmp_path / "other", code_snapshots=["nothing.py"])
    assert not (tmp_path / "other").exists()


def test_profiled_iterations(tmp_path: Path) -> None:
    run_with(tmp_path, profiled_iterations=2)
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == ["report.txt", "train.pt.trace.json"]
    assert (tmp_path / "profile" / "train.pt.trace.json").read_text().count('"ProfilerStep#') == 2


def test_every_session_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, config_of(trainer={"evaluate": False}), batches=dying(4))
    run_with(tmp_path, 11)
    found = read(tmp_path)
    recorded = [event.tensor_proto.string_val[0].decode() for event in found.Tensors("configuration/text_summary")]
    assert {text.split("summaries.summary_interval: ")[1][0] for text in recorded} == {"1", "2"}
    table = found.Tensors("parameters/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| `4.weight` | (3, 16) | 48 | 0.01 |" in table


def test_none_of_it_changes_the_run(tmp_path: Path) -> None:
    run_with(tmp_path / "off", summary_interval=0)
    run_with(tmp_path / "on", **ALL)
    off, on = (checkpoint.load_newest(tmp_path / name, "last", CPU)[0] for name in ("off", "on"))
    assert torch.equal(off["generators"]["cpu"][0], on["generators"]["cpu"][0])
    for name, value in off["model"].items():
        assert torch.equal(on["model"][name], value), name
