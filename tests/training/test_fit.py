"""The gradient loop on a toy problem: it resumes to the bit, with its curves and its best checkpoint."""

import itertools
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from installed import NOISE_SCALE
from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem
from toy import CPU, SEED, Naming, batch_at, config_of, curves, doing, dying, left_in, look, model_of, run, steps_of

from icrl.contracts import Batch, Stopped
from icrl.runs import checkpoint
from icrl.runs.distributed import Ranks
from icrl.training.fit import fit
from icrl.training.program import RunContext, ahead


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder)
    return folder


@pytest.mark.parametrize("deaths", [[1], [4], [3, 3, 6]], ids=str)
def test_a_resumed_run_equals_an_undisturbed_one_to_the_bit(tmp_path, undisturbed, deaths):
    """Weights, Adam's state, the generator behind dropout and all curves; killed before the first checkpoint,
    between two, at one and more than once."""
    (best,) = steps_of(undisturbed, "best")
    assert 0 < best < 6  # neither the first nor late, or a resumed run would not show whether it keeps the best
    for death in deaths:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, batches=dying(death))
    resumed = run(tmp_path, model=model_of(SEED if deaths == [1] else 99))  # the seed is in the checkpoint
    assert left_in(tmp_path) == left_in(undisturbed)
    toy.assert_same(resumed.state_dict(), toy.weights_of(undisturbed))


@pytest.mark.parametrize(
    ("precision", "parts", "asynchronous"),
    [("float32", 4, True), ("bfloat16", 4, False), ("float16", 1, False)],
)
def test_every_kind_of_run_resumes_to_the_bit(tmp_path, monkeypatch, precision, parts, asynchronous):
    """After an exception and a SIGTERM. The loss scaler starts so high, and grows so soon, that it is never at
    rest. The noise scale has averages of its own."""
    scaler = partial(torch.amp.GradScaler, init_scale=2.0**22, growth_interval=2)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    toy.use_worker_here(monkeypatch)
    amp_dtype = "none" if precision == "float32" else precision
    config = config_of(
        device={"amp_dtype": amp_dtype},
        summaries={"gradient_noise_scale": NOISE_SCALE},
        trainer={"gradient_accumulation_steps": parts},
        evals={"async_eval": asynchronous},
        checkpoints={"checkpoint_interval": 4},
    )
    run(tmp_path / "whole", config)
    with pytest.raises(RuntimeError, match="mine"):
        run(tmp_path / "broken", config, batches=dying(6, RuntimeError))
    with pytest.raises(Stopped, match="SIGTERM: update 6 of 11 is saved"):
        run(tmp_path / "broken", config, model_of(99), doing(partial(signal.raise_signal, signal.SIGTERM), 5))
    run(tmp_path / "broken", config, model_of(99))
    for path in (tmp_path / "broken").glob("crash-*"):
        path.unlink()
    assert left_in(tmp_path / "broken") == left_in(tmp_path / "whole")
    assert ("train/loss_scale" in curves(tmp_path / "whole")) == (precision == "float16")
    if precision == "float16":
        scales = toy.values_of(tmp_path / "whole", "train/loss_scale")
        assert {later / earlier for earlier, later in itertools.pairwise(scales)} == {0.5, 1.0, 2.0}


def test_evaluations_change_nothing(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where they take random numbers, here or beside the updates. That they may be left out is in
    `stages/test_settings.py`."""
    toy.use_worker_here(monkeypatch)
    run(tmp_path, config_of(evals={"async_eval": True}))
    assert left_in(tmp_path) == left_in(undisturbed)


def test_curves_are_over_updates_and_say_what_was_done(undisturbed: Path) -> None:
    found = curves(undisturbed)
    assert found.keys() == {f"train/{name}" for name in ("loss", "accuracy", "gradient_norm", "learning_rate")}
    assert all([step for step, _ in points] == [*range(1, 12)] for points in found.values())
    first = model_of(SEED)
    terms, metrics = Naming()(first, batch_at(0))
    (loss := terms["naming"]).backward()
    norm = torch.cat([parameter.grad.flatten() for parameter in first.parameters()]).norm().item()
    for name, value in {"loss": loss.item(), "accuracy": metrics["accuracy"].item(), "gradient_norm": norm}.items():
        assert toy.values_of(undisturbed, f"train/{name}")[0] == pytest.approx(value, rel=1e-5), name
    assert curves(undisturbed / "evals").keys() == {"in_context/score"}


def test_iterations_of_a_schedule_are_those_of_trials(tmp_path: Path) -> None:
    """Each has several updates."""
    falling = {"kind": "linear", "progress": "iterations", "points": [[0, 0.5], [2, 0.1]]}
    config = config_of(optimizer={"learning_rate": falling}, finetune={"num_iterations": 3})
    context = RunContext(config, tmp_path, CPU, Ranks(), {"program": "finetune", "run": "f00d"}, [])
    fit(context, model_of(SEED), Naming(), batch_at, look, num_mini_batches=2)
    rates = toy.values_of(tmp_path, "train/learning_rate")
    assert rates == pytest.approx([0.5, 0.5, 0.3, 0.3, 0.1, 0.1])


def test_points_are_on_disk_before_the_checkpoint_that_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a kill after it would leave a gap. The disk is one that TensorBoard writes to only when it flushes."""
    save, seen = checkpoint.save, []

    def looked_at(folder: Path, kind: str, step: int, *arguments: Any) -> None:
        seen.append((step, [at for at, _ in curves(folder).get("train/loss", [])]))
        save(folder, kind, step, *arguments)

    monkeypatch.delattr(LocalFileSystem, "append")
    monkeypatch.setattr(checkpoint, "save", looked_at)
    run(tmp_path, config_of(trainer={"num_iterations": 6, "evaluate": False}))
    assert seen == [(3, [1, 2, 3]), (6, [*range(1, 7)])]


def test_ordinary_updates_read_no_files_and_wait_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between points, checkpoints and evaluations: no number leaves the device, no file is opened."""
    config = config_of(
        trainer={"num_iterations": 12},
        device={"amp_dtype": "float16"},
        summaries={"summary_interval": 4},
        checkpoints={"checkpoint_interval": 4},
        evals={"eval_interval": 4},
    )
    calls, now = [], [-1]
    numbers = [(torch.Tensor, name) for name in ("item", "tolist", "cpu", "__bool__", "__float__", "__int__")]
    for owner, name in (*numbers, (Path, "open"), (Path, "glob")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, real=real, **kw: calls.append(now[-1]) or real(*given, **kw))
    run(tmp_path, config, batches=lambda update: now.append(update) or batch_at(update))
    assert set(calls) == {-1, 3, 7, 11}


def test_the_next_batch_is_made_beforehand() -> None:
    made = list[int]()

    def batch_of(update: int) -> Batch:
        made.append(update)
        return Batch(*[torch.tensor(1 / (update - 7))] * 10)

    ready = ahead(batch_of)
    found = [float(ready(update).obs) for update in (3, 4, 5, 6)]
    assert found == pytest.approx([1 / -4, 1 / -3, 1 / -2, -1]) and made[:4] == [3, 4, 5, 6]
    with pytest.raises(ZeroDivisionError):
        ready(7)
