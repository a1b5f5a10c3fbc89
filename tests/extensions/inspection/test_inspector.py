"""Details of updates and of source agents, and profiles: complete, and without an effect on what is learned."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from harness import done
from torch.profiler import record_function
from toy import CPU, assert_same, batch_at, config_of, curves, events_of, left_in, model_of, run, values_of

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Rollout
from icrl.extensions.inspection.inspector import DetailedInspector
from icrl.runs import checkpoint
from icrl.runs.metrics import MetricLogger

BASE = {"train/loss", "train/accuracy", "train/gradient_norm", "train/learning_rate"}


def run_with(folder: Path, **options: Any) -> Path:
    """Run without evaluations that shows every second update, unless told otherwise."""
    spaced = {"num_summaries": 0, "summary_interval": 2}
    run(folder, config_of(trainer={"num_iterations": 4, "evaluate": False}, summaries=spaced | options))
    return folder


def test_details_of_the_last_update(tmp_path: Path) -> None:
    """They are of its batch and of the model after it, without dropout."""
    found = events_of(run_with(tmp_path, details=True))
    model = model_of(0).eval()
    model.load_state_dict(checkpoint.load_newest(tmp_path, "last", CPU)[0]["model"])
    logits = model(batch_at(3).obs).detach()
    chances = logits.softmax(-1).flatten(0, 1)
    entropy = -(chances * chances.log()).sum(-1)
    means = {f"probability_{action}": value for action, value in enumerate(chances.mean(0).tolist())}
    means["entropy"] = entropy.mean().item()
    assert {f"actions/{name}" for name in means} == {tag for tag in set(curves(tmp_path)) - BASE if "actions" in tag}
    for name, value in means.items():
        assert values_of(tmp_path, f"actions/{name}")[-1] == pytest.approx(value, abs=1e-5)
    expected = {"actions/entropies": entropy, "outputs/logits": logits}
    expected |= {f"data/{name}": column.float() for name, column in batch_at(3)._asdict().items()}
    parts = {f"{kind}/{name}" for kind in ("value", "gradient") for name, _ in model.named_parameters()}
    assert set(found.Tags()["histograms"]) == expected.keys() | parts
    for tag, values in expected.items():
        last = found.Histograms(tag)[-1]
        assert (last.step, last.histogram_value.num) == (4, values.numel()), tag
        assert last.histogram_value.sum == pytest.approx(values.sum().item(), abs=1e-3), tag


def test_none_of_it_changes_the_run(tmp_path: Path) -> None:
    run_with(tmp_path / "off", summary_interval=0)
    run_with(tmp_path / "on", details=True, profiled_iterations=2)
    off, on = (checkpoint.load_newest(tmp_path / name, "last", CPU)[0] for name in ("off", "on"))
    assert torch.equal(off["generators"]["cpu"][0], on["generators"]["cpu"][0])
    assert_same(off["model"], on["model"])


class Actions(NamedTuple):
    action: torch.Tensor


class Agents:
    """Three learners, as inspection sees them: one of two actions, parameters with and without a gradient."""

    has_memory = False

    def parameters(self):
        weight = torch.full((3, 4), 2.0, requires_grad=True)
        weight.grad = torch.full((3, 4), 0.5)
        yield from (("weight", weight), ("bias", torch.full((3, 1), 3.0)))

    def remember(self, carry, step):
        return step, carry

    def action_probabilities(self, step):
        assert step.obs.tolist() == step.timestep.tolist() == step.optimal_action.tolist() == [4] * 6
        return torch.tensor([0.5, 0.0, 0.5, 0.0, 0.0]).expand(len(step.obs), -1)

    def outputs(self):
        return {"values": torch.arange(6.0)}


NUMBERS = {
    **{"parameters/value_norm/weight": 48**0.5, "parameters/gradient_norm/weight": 3**0.5},
    **{"parameters/value_norm/bias": 27**0.5, "actions/entropy": 0.6931},
    **{f"actions/probability_{action}": 0.5 * (action in (0, 2)) for action in range(5)},
}
HISTOGRAMS = {  # number and sum of values
    **{"value/weight": (12, 24.0), "gradient/weight": (12, 6.0), "value/bias": (3, 9.0)},
    **{"actions/entropies": (6, 6 * 0.6931), "outputs/values": (6, 15.0), "data/reward": (30, 7.0)},
    **{f"data/{name}": (30, 60.0) for name in ("obs", "action", "timestep")},
}


def test_details_of_source_agents_by_hand(tmp_path: Path) -> None:
    """Below names that begin with `source_`, because their steps are env steps."""
    time = torch.arange(5)[:, None].expand(5, 6)
    never, rewards = torch.zeros_like(time).bool(), (time < torch.tensor([3, 3, 0, 0, 1, 0])).long()
    with MetricLogger(tmp_path, 0) as logger:
        steps = Rollout(time, torch.full_like(time, 2), rewards, time, time, never, never, time)
        DetailedInspector().show_agents(logger, 60, Agents(), steps)
    found, numbers = events_of(tmp_path), curves(tmp_path)
    assert numbers.keys() == {f"source_{tag}" for tag in NUMBERS}
    for tag, value in NUMBERS.items():
        ((at, shown),) = numbers[f"source_{tag}"]
        assert (at, float(shown)) == (60, pytest.approx(value, abs=1e-4)), tag
    assert {*found.Tags()["histograms"]} == {f"source_{tag}" for tag in HISTOGRAMS}
    for tag, (number, total) in HISTOGRAMS.items():
        (event,) = found.Histograms(f"source_{tag}")
        value = event.histogram_value
        assert (event.step, value.num, value.sum) == (60, number, pytest.approx(total, abs=1e-3)), tag


def test_actions_of_several_integers_have_no_probabilities_to_show(tmp_path: Path) -> None:
    """The logits of an update are those of several categoricals, and source agents have no table of actions."""
    action = torch.zeros(4, 6, 2, dtype=torch.long)
    objective = SimpleNamespace(logits=lambda model, batch: model(torch.ones(4, 6, 3)))
    agents = Agents()
    agents.action_probabilities = None
    time, never = action[..., 0], action[..., 0].bool()
    with MetricLogger(tmp_path, 0) as logger:
        DetailedInspector().show_update(logger, 1, torch.nn.Linear(3, 5), objective, Actions(action))
        steps = Rollout(time, action, time.float(), time, time, never, never, action)
        DetailedInspector().show_agents(logger, 60, agents, steps)
    found = events_of(tmp_path).Tags()
    assert {"outputs/logits", "source_outputs/values", "source_data/action"} <= {*found["histograms"]}
    assert not [tag for tag in (*found["scalars"], *found["histograms"]) if "actions/" in tag]


def test_stage_one_learns_the_same_with_all_that_can_be_shown(finished: Path, tmp_path: Path) -> None:
    options = ("summaries.summary_interval=3", "summaries.details=true", "summaries.profiled_iterations=2")
    done("train_agents", tmp_path, *options)
    folder = tmp_path / "logs/tiny/source"
    parts = ("parameters", "value", "gradient", "actions", "outputs", "data")
    tags = events_of(folder).Tags()
    found = {tag.split("/")[0] for tag in (*tags["scalars"], *tags["histograms"])}
    assert found == {"source", "update", *(f"source_{part}" for part in parts)}
    (trace,) = (folder / "profile").glob("train.*.pt.trace.json")
    assert trace.read_text().count('"ProfilerStep#') == 2
    ours, theirs = (left_in(root / "logs/tiny/source")["last"][2] for root in (tmp_path, finished))
    assert all(ours[part] == theirs[part] for part in ("learner", "streams", "step", "unroll_worker"))


def test_details_that_cannot_be_shown_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"summaries\.details=true .*summaries\.summary_interval=0"):
        load_config(["summaries.details=true", "summaries.num_summaries=0"])


@pytest.mark.parametrize(
    ("number", "last", "expected", "fails"), [(3, 6, [2, 3, 4], False), (4, 3, [2, 3], True), (0, 3, [], False)]
)
def test_the_iterations_after_the_first_are_profiled(tmp_path, number, last, expected, fails):
    """Also when training fails after them; its exception is the one that is raised."""
    weight, profiled = torch.ones(4, 4, requires_grad=True), DetailedInspector().profiled(tmp_path, number)
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext(), profiled as iteration_done:
        for iteration in range(1, last + 1):
            with record_function(f"iteration {iteration}"):
                (weight @ weight).sum().backward()
            iteration_done()
        if fails:
            raise KeyboardInterrupt
    if not expected:
        assert not list(tmp_path.glob("profile/*"))
        return
    (trace,) = tmp_path.glob("profile/train.*.pt.trace.json")
    events = json.loads(trace.read_text())["traceEvents"]
    markers = {event["name"] for event in events if event["name"].startswith("iteration ") and event["ph"] == "X"}
    assert markers == {f"iteration {iteration}" for iteration in expected}
    report = (tmp_path / "profile/report.txt").read_text()
    assert re.search("^By own CPU time\n.*aten::mm.*\nBy CPU time with what it calls\n.*aten::mm", report, re.DOTALL)
