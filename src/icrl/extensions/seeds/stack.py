"""Many small models as one program: runs of stage two that share shapes and options, but not seed and data.

Each run has its own folder, batches, checkpoints and curves, and ends as if it was trained alone, apart from rounding.
Forward and backward pass and optimizer step are those of one model with a leading axis (`stacked_model`); gradients
are clipped for each model by itself. K models, B windows of each, T steps.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from icrl.app.root import Config
from icrl.config.options import OneOrMore, option, refuse
from icrl.config.schedules import Clock
from icrl.contracts import Batch, Stopped
from icrl.extensions.seeds.stacked_model import check_stackable, stacked
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.heads import make_head
from icrl.programs.train_gpt import Parts
from icrl.spaces import EnvSpec
from icrl.training.fit import Training, opened
from icrl.training.optimizers import make_optimizer, set_rates
from icrl.training.program import RunContext
from icrl.training.updates import Updater

Metrics = dict[str, Tensor]


class SeedsConfig(Config):
    """Options of all programs, and the seeds."""

    seeds: Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], OneOrMore] = option(
        [0, 1, 2],
        "seeds of the models, all trained as one program; the run of seed k is <name>-seedk",
        may_change=True,
        stages="2",
    )


def check_together(config: SeedsConfig, spec: EnvSpec) -> None:
    """Raise `ConfigError` for options with which models cannot be trained as one program, or would not end as alone."""
    trainer, model, given = config.trainer, config.model, f"seeds={config.seeds}"
    distinct = config.seeds and len({*config.seeds}) == len(config.seeds)
    refuse(not distinct, f"{given}: must be one seed, or several different ones")
    other = config.seed != Config.model_fields["seed"].default
    refuse(other, f"seed={config.seed}: each model has its own seed, from {given}; leave seed out")
    needs = {
        "trainer.gradient_accumulation_steps=1": trainer.gradient_accumulation_steps > 1,
        "trainer.compile=false": trainer.compile,
        "a precision other than device.amp_dtype=float16": config.device.amp_dtype == "float16",
        "an optimizer whose steps do not depend on norms of whole tensors": not config.optimizer.takes_stacks,
        "summaries.details=false": config.summaries.details,
        "a model without dropout, which would draw other numbers than alone": any(
            (model.attention_dropout, model.residual_dropout, model.embedding_dropout)
        ),
        "an encoding other than model.obs_encoding=framed, which draws places": model.obs_encoding == "framed",
        "a model.position without parameters": model.position == "learned",
        "a model.head of the plain model, such as auto": make_head(model, spec).model is not None,
        "a single process, not torchrun": "RANK" in os.environ,
    }
    for need, lacking in needs.items():
        refuse(lacking, f"{given} needs {need}")
    with torch.device("meta"):
        check_stackable(GPT(model, spec))


def fit_together(runs: Sequence[tuple[RunContext, Parts]]) -> None:
    """Train the models of all `runs` at once, as `fit` trains one. Runs that are behind the others, because the program
    was killed between two of their checkpoints, catch up first. A signal ends all of them, each with a checkpoint,
    before `Stopped` is raised."""
    updaters = [
        Updater(parts.model.train(), parts.objective, context.config, context.device, context.ranks)
        for context, parts in runs
    ]
    with ExitStack() as stack:
        trainings = [
            stack.enter_context(opened(context, updater, parts.evaluator))
            for (context, parts), updater in zip(runs, updaters, strict=True)
        ]
        done, models = [training.run.done for training in trainings], dict[tuple[int, ...], Stack]()
        while trainings:
            update = min(done)
            behind = [k for k, made in enumerate(done) if made == update]
            _evaluate_and_save([trainings[k] for k in behind], update)
            if update == trainings[0].run.total:
                break
            if (key := tuple(behind)) not in models:
                models = {key: Stack([updaters[k] for k in behind])}
            batches = [runs[k][1].batch_at(update) for k in behind]
            for k, batch in zip(behind, batches, strict=True):
                trainings[k].measure_noise(batch)
            found = models[key].update(batches, trainings[behind[0]].clock)
            for k, batch, metrics in zip(behind, batches, found, strict=True):
                trainings[k].log(metrics, batch)
                done[k] += 1


def _evaluate_and_save(trainings: Sequence[Training], update: int) -> None:
    """Evaluate and save after `update` updates. Raises `Stopped` after the last of the trainings was saved."""
    stopped = None
    for training in trainings:
        try:
            training.evaluate_and_save(update)
        except Stopped as error:
            stopped = error
    if stopped:
        raise stopped


class Stack:
    """Updater of the models of several updaters, whose states it changes in place."""

    def __init__(self, updaters: Sequence[Updater]) -> None:
        self._first, self._updaters = updaters[0], updaters
        models = [updater.model for updater in updaters]
        self._model: nn.Module = stacked(models).train()
        self._optimizer = make_optimizer(self._model, self._first.optimizer_config)
        parts = zip(*(model.parameters() for model in models), strict=True)
        self._parameters: list[tuple[nn.Parameter, tuple[nn.Parameter, ...]]] = [
            *zip(self._model.parameters(), parts, strict=True)
        ]
        for updater in updaters:
            updater.precision = self._first.precision  # was measured by each
            updater.optimizer.register_state_dict_post_hook(_cloned)
        for whole, each in self._parameters:
            states = [updater.optimizer.state[part] for updater, part in zip(updaters, each, strict=True)]
            self._optimizer.state[whole] = {
                key: torch.stack([state[key] for state in states]) if _is_like(value, each[0]) else value
                for key, value in states[0].items()
            }
        self._is_shared = False

    def update(self, batches: Sequence[Batch], clock: Clock) -> list[Metrics]:
        """Optimizer step of each model on its own batch `[B, T]`. Returns what `Updater.update` does, for each."""
        config, number = self._first.optimizer_config, len(batches)
        for optimizer in (self._optimizer, *(updater.optimizer for updater in self._updaters)):
            set_rates(optimizer, config, clock)
        self._optimizer.zero_grad()
        together = Batch(*(torch.cat(columns) for columns in zip(*batches, strict=True)))
        with self._first.autocast():
            parameters = self._model(context_of(Window.of(together)))  # of the heads, `[K * B, T, P]`

        def loss_of(parameters: Tensor, *columns: Tensor) -> tuple[Tensor, Metrics]:
            loss, _, metrics = self._first.loss(_KnownParameters(parameters), Batch(*columns))
            return loss, metrics

        columns = (column.unflatten(0, (number, -1)) for column in together)
        losses, metrics = torch.vmap(loss_of)(parameters.unflatten(0, (number, -1)), *columns)
        losses.sum().backward()
        norm = self._clip(self._first.max_norm(clock))
        self._optimizer.step()
        if not self._is_shared:  # the first step may have made it
            self._share_state()
        return [{name: value[k] for name, value in (metrics | {"gradient_norm": norm}).items()} for k in range(number)]

    def _clip(self, max_norm: float) -> Tensor:
        """Clip the gradient of each model to `max_norm`; returns the norms before, `[K]`."""
        gradients = [whole.grad for whole, _ in self._parameters if whole.grad is not None]
        norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as `clip_grad_norm_` does
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
        return norm

    def _share_state(self) -> None:
        """Make the state of each model's optimizer a part of the common one, as its parameters are."""
        for whole, each in self._parameters:
            for k, (updater, part) in enumerate(zip(self._updaters, each, strict=True)):
                state = self._optimizer.state[whole].items()
                updater.optimizer.state[part] = {
                    key: value[k] if _is_like(value, whole) else value for key, value in state
                }
        self._is_shared = True


class _KnownParameters(nn.Module):
    """Model that has read its input already."""

    def __init__(self, parameters: Tensor) -> None:
        super().__init__()
        self._parameters_of_head = parameters

    def forward(self, _: Any) -> Tensor:
        return self._parameters_of_head


def _is_like(value: Any, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape


def _cloned(_: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Copy of the state, so that a file of it holds no other model's."""
    copied = {
        number: {key: value.clone() if isinstance(value, Tensor) else value for key, value in of_one.items()}
        for number, of_one in state["state"].items()
    }
    return state | {"state": copied}
