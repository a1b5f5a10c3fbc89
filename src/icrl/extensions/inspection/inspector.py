"""Details of an update and a profile of iterations."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from icrl.contracts import AnyBatch, Objective, Rollout, Step
from icrl.runs.files import write_atomically
from icrl.runs.metrics import Inspector, MetricLogger
from icrl.runs.processes import say
from icrl.sources.collect import Learner


class DetailedInspector(Inspector):
    """Curves and histograms of parameters and gradients, of the policy, of outputs of its network and of the data of an
    update; and a profile."""

    @contextmanager
    def profiled(self, folder: Path, num_iterations: int) -> Iterator[Callable[[], None]]:
        """Profile of iterations 2 to `num_iterations` + 1; the first one warms up caches, compiler and profiler.

        After the last one, or when the context exits, `folder`/profile gets train.*.pt.trace.json (for TensorBoard or
        Perfetto) and report.txt with the slowest operations."""
        if not num_iterations:
            yield lambda: None
            return
        folder = folder / "profile"
        orders = {"own CPU time": "self_cpu_time_total", "CPU time with what it calls": "cpu_time_total"}
        if gpu := torch.cuda.is_available():
            orders["own GPU time"] = "self_device_time_total"
        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * gpu]
        write_trace = tensorboard_trace_handler(str(folder), "train")

        def write(recorded: Any) -> None:
            write_trace(recorded)
            averages = recorded.key_averages()
            tables = [f"By {name}\n{averages.table(sort_by=order, row_limit=40)}" for name, order in orders.items()]
            write_atomically(folder / "report.txt", "\n".join(tables).encode())
            say(f"profile: {folder}")

        pace = schedule(wait=0, warmup=1, active=num_iterations, repeat=1)
        with profile(activities=activities, schedule=pace, on_trace_ready=write) as recorded:
            yield recorded.step

    def show_update(
        self, logger: MetricLogger, update: int, model: nn.Module, objective: Objective, batch: AnyBatch
    ) -> None:
        with torch.no_grad():
            logits = objective.logits(model.eval(), batch)  # without dropout
        model.train()
        single = batch.action.ndim < logits.ndim and not batch.action.is_floating_point()
        probabilities = logits.softmax(-1) if single else None
        _show(logger, update, model.named_parameters(), probabilities, {"logits": logits}, batch._asdict())

    def show_agents(self, logger: MetricLogger, steps: int, learner: Learner, transitions: Rollout) -> None:
        """The tags begin with `source_`, because their steps are env steps."""
        probabilities = None
        single = transitions.action.ndim == 2 and not transitions.action.is_floating_point()
        if single and not learner.has_memory:
            last, _ = learner.remember((), _last_step(transitions))
            probabilities = learner.action_probabilities(last)
        data = {name: getattr(transitions, name) for name in ("obs", "action", "reward", "timestep")}
        _show(logger, steps, learner.parameters(), probabilities, learner.outputs(), data, "source_")


def _show(
    logger: MetricLogger,
    step: int,
    parameters: Iterable[tuple[str, Tensor]],
    probabilities: Tensor | None,
    outputs: Mapping[str, Tensor],
    data: Mapping[str, Tensor],
    prefix: str = "",
) -> None:
    """Add the details of one point, below tags that begin with `prefix`. `probabilities` of actions are `[..., A]`, or
    None unless an action is one integer."""
    for name, parameter in parameters:
        for kind, tensor in (("value", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None:
                norm = tensor.float().norm().item()
                logger.scalars(f"{prefix}parameters", {f"{kind}_norm/{name}": norm}, step)
                logger.histograms({f"{prefix}{kind}/{name}": tensor}, step)
    if probabilities is not None:
        flat = probabilities.flatten(0, -2).float()
        entropy = -(flat * flat.clamp(min=1e-12).log()).sum(-1)  # in nats
        means = {f"probability_{action}": value for action, value in enumerate(flat.mean(0).tolist())}
        logger.scalars(f"{prefix}actions", means | {"entropy": entropy.mean().item()}, step)
        logger.histograms({f"{prefix}actions/entropies": entropy}, step)
    logger.histograms({f"{prefix}outputs/{name}": value for name, value in outputs.items()}, step)
    logger.histograms({f"{prefix}data/{name}": column for name, column in data.items()}, step)


def _last_step(transitions: Rollout) -> Step:
    """Step of the streams before their last action."""
    last = transitions.each(lambda column: column[-1])
    nothing, never = torch.zeros_like(last.action), torch.zeros_like(last.terminated)
    return Step(last.obs, nothing, never, never, last.obs, last.timestep, last.optimal_action)
