"""The gradient loop on a toy problem: it learns, it resumes to the bit, it keeps the best."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

from src.config import load_config
from src.training.checkpoint import load_newest
from src.training.fit import Evaluation, fit
from src.training.optimizers import learning_rate
from src.training_schema import OptimizerConfig

CONFIG = load_config()
OPTIMIZER = OptimizerConfig(
    name="adamw",
    learning_rate=0.05,
    final_learning_rate=0.01,
    warmup_updates=2,
    schedule_updates=0,
    beta1=0.9,
    beta2=0.99,
    eps=1e-8,
    weight_decay=0.01,
    max_gradient_norm=1.0,
)
TRAINER = dataclasses.replace(
    CONFIG.trainer, num_updates=11, log_interval=1, checkpoint_interval=3, keep_checkpoints=2, evaluation_interval=2
)
CPU = torch.device("cpu")
SEED = 9  # of a run whose best evaluation is an early one
Sample = tuple[Tensor, Tensor]


def model_of(seed: int, dropout: float = 0.4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 1))


def batch_at(update: int) -> Sample:
    x = torch.rand(32, 3, generator=torch.Generator().manual_seed(update))
    return x, x.sum(dim=1, keepdim=True) * 3 - 2


def squared_error(model: nn.Module, batch: Sample) -> tuple[Tensor, dict[str, Tensor]]:
    error = model(batch[0]) - batch[1]
    return error.square().mean(), {"absolute_error": error.detach().abs().mean()}


class Judge:
    """Scores that go up and down, and depend on nothing but the weights; notes what it was asked for."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.scores, self.weights = model, [], []

    def __call__(self) -> Evaluation:
        assert not self.model.training
        torch.rand(3)  # an evaluation that takes random numbers must not change the run
        score = math.sin(50 * sum(p.detach().double().sum().item() for p in self.model.parameters()))
        self.scores.append(score)
        self.weights.append({name: value.clone() for name, value in self.model.state_dict().items()})
        return Evaluation({"score": score}, score)


def run(folder: Path, model: nn.Module, batches: Callable[[int], Any] = batch_at, **changes: float) -> Judge:
    judge, trainer = Judge(model), dataclasses.replace(TRAINER, **changes)
    fit(model, squared_error, batches, judge, OPTIMIZER, trainer, folder, {"about": "toy"}, CPU)
    return judge


def dying_at(last: int) -> Callable[[int], Sample]:
    def batches(update: int) -> Sample:
        if update == last:
            raise KeyboardInterrupt
        return batch_at(update)

    return batches


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, Tensor):
        assert torch.equal(ours, theirs)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_equal(ours[key], theirs[key])
    elif isinstance(ours, list):
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    else:
        assert ours == theirs


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder, model_of(SEED))
    return folder


def test_it_learns(tmp_path: Path) -> None:
    model = model_of(0, dropout=0.0)
    before = squared_error(model, batch_at(-1))[0].item()
    run(tmp_path, model, num_updates=200, log_interval=200, evaluation_interval=200, checkpoint_interval=200)
    after = squared_error(model.eval(), batch_at(-1))[0].item()
    assert before > 1
    assert after < 0.02


@pytest.mark.parametrize("deaths", [[1], [3], [4], [8], [10], [5, 7], [3, 3, 6]], ids=str)
def test_a_resumed_run_equals_an_undisturbed_one_to_the_bit(
    tmp_path: Path, undisturbed: Path, deaths: list[int]
) -> None:
    """Weights, Adam's state, the generator behind dropout and all curves; killed before the first checkpoint, at one,
    between two, more than once."""
    for death in deaths:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, model_of(SEED), dying_at(death))
    resumed = model_of(SEED if deaths == [1] else 99)  # after a checkpoint nothing may depend on the seed any more
    run(tmp_path, resumed)
    for kind in ("last", "best"):
        ours, theirs = (load_newest(folder, kind, CPU) for folder in (tmp_path, undisturbed))
        assert ours[1]["step"] == theirs[1]["step"]
        assert_equal(ours[0], theirs[0])
    assert_equal(dict(resumed.state_dict()), dict(load_newest(undisturbed, "last", CPU)[0]["model"]))
    assert curves(tmp_path) == curves(undisturbed)


def test_the_state_matters(tmp_path: Path, undisturbed: Path) -> None:
    """Another seed of dropout gives other weights: the test above can fail."""
    model = model_of(SEED)
    torch.manual_seed(1)
    run(tmp_path, model)
    theirs = load_newest(undisturbed, "last", CPU)[0]["model"]
    assert not torch.equal(model[0].weight, theirs["0.weight"])


def test_the_best_checkpoint_is_that_of_the_best_score(tmp_path: Path) -> None:
    judge = run(tmp_path, model_of(SEED))
    assert len(judge.scores) == 7  # updates 0, 2, ..., 10 and the last
    best = judge.scores.index(max(judge.scores))
    assert 0 < best < 3  # neither the first nor late, or neither this nor a resumed run would show a thing
    state, sidecar = load_newest(tmp_path, "best", CPU)
    assert sidecar["step"] == state["update"] == 2 * best
    assert state["best_score"] == max(judge.scores)
    assert_equal(dict(state["model"]), judge.weights[best])
    assert len(list(tmp_path.glob("best-*.pt"))) == 1


def test_of_equal_scores_the_latest_wins(tmp_path: Path) -> None:
    model = model_of(0)
    fit(
        model, squared_error, batch_at, lambda: Evaluation({}, 0.0), OPTIMIZER, TRAINER, tmp_path, {"about": "toy"}, CPU
    )
    assert load_newest(tmp_path, "best", CPU)[1]["step"] == 11


def test_checkpoints_are_kept_as_told(undisturbed: Path) -> None:
    assert sorted(path.name for path in undisturbed.glob("last-*.pt")) == ["last-000000009.pt", "last-000000011.pt"]
    assert load_newest(undisturbed, "last", CPU)[1]["description"] == {"about": "toy"}


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, model_of(0))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*-*.*[tn]")}
    assert len(before) == 6
    judge = run(tmp_path, model_of(7), dying_at(11))
    assert not judge.scores
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*-*.*[tn]")} == before


def test_curves_are_over_updates_and_say_what_was_done(undisturbed: Path) -> None:
    found = curves(undisturbed)
    assert set(found) == {
        "train/loss",
        "train/gradient_norm",
        "train/absolute_error",
        "train/learning_rate",
        "in_context/score",
    }
    assert [step for step, _ in found["train/loss"]] == list(range(1, 12))
    assert [step for step, _ in found["in_context/score"]] == [0, 2, 4, 6, 8, 10, 11]
    assert [rate for _, rate in found["train/learning_rate"]] == pytest.approx(
        [learning_rate(OPTIMIZER, update, 11) for update in range(11)]
    )


def test_gradients_are_clipped_together(tmp_path: Path) -> None:
    model = model_of(0)
    run(tmp_path, model, num_updates=1)
    left = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    assert left == pytest.approx(1.0, abs=1e-4)
    assert curves(tmp_path)["train/gradient_norm"][0][1] > 1.5


def test_training_mode_is_back_after_an_evaluation(tmp_path: Path) -> None:
    model, modes = model_of(0), []

    def batches(update: int) -> Sample:
        modes.append(model.training)
        return batch_at(update)

    run(tmp_path, model, batches, num_updates=5)
    assert modes == [True] * 5
