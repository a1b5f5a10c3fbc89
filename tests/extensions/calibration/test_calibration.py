"""Calibration of action probabilities: the equation on numbers worked by hand, in evaluations, and its picture."""

import pytest
import torch
from harness import done, refusal
from matplotlib import pyplot as plt

from icrl.contracts import Batch
from icrl.extensions.calibration.reliability import calibration, reliability
from icrl.runs.files import read_json
from icrl.spaces import discrete_spec


def test_the_error_is_the_mean_gap_of_the_bins() -> None:
    """0.1 and 0.2 end a bin, and do not begin the next."""
    confidence = torch.tensor([0.1, 0.15, 0.2, 0.9, 0.95, 1.0], dtype=torch.float64)
    correct = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    found = reliability(confidence, correct)
    assert [one["bin"] for one in found["bins"]] == [0, 1, 8, 9]
    assert [one["share"] for one in found["bins"]] == pytest.approx([1 / 6, 2 / 6, 1 / 6, 2 / 6])
    assert [one["accuracy"] for one in found["bins"]] == [0, 0.5, 1, 1]
    assert [one["confidence"] for one in found["bins"]] == pytest.approx([0.1, 0.175, 0.9, 0.975])
    assert found["error"] == pytest.approx((0.1 + 2 * 0.325 + 0.1 + 2 * 0.025) / 6)
    assert (found["accuracy"], found["confidence"]) == (pytest.approx(4 / 6), pytest.approx(3.3 / 6))


@pytest.mark.parametrize(("scale", "low", "high"), [(1.0, 0.0, 0.01), (3.0, 0.1, 1.0), (0.2, 0.1, 1.0)])
def test_a_model_that_knows_the_probabilities_is_calibrated_and_a_bold_or_a_shy_one_is_not(scale, low, high) -> None:
    spec, generator = discrete_spec(50, 4, (0.0,), 0, 5), torch.Generator().manual_seed(0)
    table = 1.5 * torch.randn(50, 4, generator=generator)
    obs = torch.randint(50, (1000, 20), generator=generator)
    action = torch.multinomial(table.softmax(-1)[obs.flatten()], 1, generator=generator).view_as(obs)
    wrong = (action + 1) % 4
    batch = Batch(obs, action, *5 * [torch.zeros_like(obs)], wrong, obs.float(), obs.float())

    class Model(torch.nn.Module):
        device = torch.device("cpu")

        def forward(self, context):
            return scale * table[context.obs]

    found = calibration(Model(), spec, batch, "action")
    assert low <= found["error"] < high
    assert sum(one["share"] for one in found["bins"]) == pytest.approx(1)
    assert calibration(Model(), spec, batch, "optimal_action")["accuracy"] < found["accuracy"]


def test_it_is_measured_after_training(root, monkeypatch) -> None:
    monkeypatch.setattr("icrl.extensions.calibration.programs.calibrate.NUM_WINDOWS", 40)
    away = refusal("calibrate", root, "env.terminate_on_goal=false")
    assert "needs the histories of this world" in away
    told, logs = done("calibrate", root), root / "logs/tiny"
    found = read_json(logs / "evaluation/calibration.json")
    assert 0 <= found["error"] <= 1
    assert f"calibration error on windows of development tasks: {found['error']:.3f}" in told
    assert plt.imread(logs / "evaluation/calibration.png").shape[:2] == (175, 300)  # a quarter, see `blank`


def test_it_needs_development_tasks(root) -> None:
    none = ("data.num_development_tasks=0", "trainer.evaluate=false", "evaluation.checkpoint=last")
    options = ("name=none", "run=none", "histories=tiny", *none)
    done("train_gpt", root, *options)
    assert "needs development tasks" in refusal("calibrate", root, *options)


def test_it_is_measured_where_the_agents_of_development_tasks_did_not_learn(root) -> None:
    """The model learned from successful agents alone, and none of the development tasks has one."""
    options = ("name=good", "run=good", "histories=tiny", "data.min_final_success=1")
    done("train_gpt", root, *options)
    done("calibrate", root, *options)
    assert (root / "logs/good/evaluation/calibration.json").exists()
