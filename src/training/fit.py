"""The gradient loop: minimise an objective on batches that are functions of (seed, update)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from src.training_schema import OptimizerConfig, TrainerConfig
from src.contracts import Batch, Json, Metrics, Objective
from src.training import checkpoint
from src.training.optimizers import learning_rate, make_optimizer
from src.training.summaries import Progress, Summaries

_INTERVALS_PER_LINE = 10  # log intervals between two lines; TensorBoard has all points


class Evaluation(NamedTuple):
    """What an evaluation found: curves to show, and the score that chooses the best checkpoint (higher is better)."""

    metrics: Metrics
    score: float


def fit(
    model: nn.Module,
    objective: Objective,
    batch_at: Callable[[int], Batch],
    evaluate: Callable[[], Evaluation],
    optimizer_config: OptimizerConfig,
    config: TrainerConfig,
    folder: Path,
    description: Json,
    device: torch.device,
) -> None:
    """Train `model` in place for `config.num_updates`, from the newest checkpoint in `folder` if there is one.

    Keeps the newest checkpoints (`last`) and the one with the best evaluation (`best`) in `folder`, with `description`
    beside them, and TensorBoard curves over updates. A continued run ends with the bits of an undisturbed one."""
    optimizer = make_optimizer(model, optimizer_config)
    first, best_score = _resume(model, optimizer, folder, device)
    summaries = Summaries(folder, first)
    progress = Progress("train_gpt", config.num_updates, first, "update")
    for update in range(first, config.num_updates + 1):
        last = update == config.num_updates
        resumed = update == first > 0  # what is done at this update was done before its checkpoint was written
        if not resumed and (last or update % config.evaluation_interval == 0):
            model.eval()
            evaluation = evaluate()
            model.train()
            summaries.scalars("in_context", evaluation.metrics, update)
            if update and evaluation.score >= best_score:
                best_score = evaluation.score
                checkpoint.save(folder, "best", update, _state(model, optimizer, update, best_score), description, 1)
            progress.log(evaluation.metrics)
        if update > first and (last or update % config.checkpoint_interval == 0):
            state = _state(model, optimizer, update, best_score)
            checkpoint.save(folder, "last", update, state, description, config.keep_checkpoints)
        if last:
            break
        rate = learning_rate(optimizer_config, update, config.num_updates)
        metrics = _update(model, objective, batch_at(update), optimizer, rate, optimizer_config.max_gradient_norm)
        progress.advance(1)
        if (update + 1) % config.log_interval == 0:
            values = {name: value.item() for name, value in metrics.items()} | {"learning_rate": rate}
            summaries.scalars("train", values, update + 1)
            if (update + 1) % (_INTERVALS_PER_LINE * config.log_interval) == 0:
                progress.log({name: values[name] for name in ("loss", "accuracy") if name in values})
    progress.close()
    summaries.close()


def _update(
    model: nn.Module,
    objective: Objective,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    rate: float,
    max_gradient_norm: float,
) -> dict[str, Tensor]:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss, metrics = objective(model, batch)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_gradient_norm)
    optimizer.step()
    return {"loss": loss.detach(), "gradient_norm": norm} | metrics


def _state(model: nn.Module, optimizer: torch.optim.Optimizer, update: int, best_score: float) -> dict[str, Any]:
    """Everything that survives an update."""
    return {
        "update": update,
        "best_score": best_score,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "cpu_generator": torch.get_rng_state(),
        "cuda_generators": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _resume(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, device: torch.device
) -> tuple[int, float]:
    """Load the newest checkpoint if there is one: the update to go on from and the best score so far."""
    found = checkpoint.load_newest(folder, "last", device)
    if found is None:
        return 0, float("-inf")
    state, _ = found
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["cpu_generator"].cpu())
    for index, generator in enumerate(state["cuda_generators"][: torch.cuda.device_count()]):  # GPUs may be fewer now
        torch.cuda.set_rng_state(generator.cpu(), index)
    return state["update"], state["best_score"]
