"""Base of all sources: many independent learners as one batched learner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from icrl.config.options import refuse
from icrl.config.schedules import Clock, Schedule, make_schedule
from icrl.contracts import Env, Rollout, Sample, Step, UpdateResult
from icrl.randomness import draw_possible, sampled_or_greedy
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config


class Learner:
    """L learners and, as a `Policy`, their actions in B streams. A subclass gives `action_probabilities`, `update` and
    `saved`. Call `set_clock` before the first use."""

    options: type[Any]  # class of the options, set by the decorator `source`
    network: Any = None  # module whose parameters have a leading learner axis
    experience: Any = None  # class of its training samples; None: `sources.collect.Experience`
    has_memory = False  # whether the carry remembers observations
    saved: tuple[str, ...] = ()  # attributes in checkpoints, beside the clock: modules, optimizers, tensors, numbers
    clock: Clock

    def __init__(self, config: Any, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """Learner k's initial parameters are a function of `seeds[k]` alone; `config` are the options of the source."""
        self.config, self.num_learners, self.device = config, len(seeds), device
        self._spec, self._discount = spec, config.discount
        self._schedules: dict[str, Schedule] = {}

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Fresh learners for `tasks` `[G, task_dim]`. A source with more set-up, such as an expert, overrides this."""
        return cls(config.source, env.spec, seeds, device)

    @classmethod
    def check_spaces(cls, name: str, spec: EnvSpec) -> None:
        """Raise `ConfigError` unless the learners of the source `name` can act in a world with `spec`."""

    def set_clock(self, clock: Clock) -> None:
        """Set the progress of the run, which the rates are functions of."""
        self.clock = clock

    def rate(self, name: str) -> float:
        """Value of the option `name`, a number or a schedule, at the present clock."""
        if name not in self._schedules:
            self._schedules[name] = make_schedule(getattr(self.config, name))
        return self._schedules[name](self.clock)

    def initial_carry(self, num_streams: int) -> Any:
        """Raises `ValueError` unless the learners get equally many streams."""
        if num_streams % self.num_learners:
            raise ValueError(f"{num_streams} streams cannot be divided evenly among {self.num_learners} learners")
        return ()

    def remember(self, carry: Any, step: Step) -> tuple[Step, Any]:
        """`step` with what the learners remember in place of its observations, as `act_in_evaluation` and
        `action_probabilities` read it, and the carry after it."""
        return step, carry

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        """Sample from `action_probabilities` by inverting the cumulative distribution at `noise`."""
        probabilities = self.action_probabilities(step)
        if self.clock.iterations == 0:  # not always, because it waits for the device
            shape, sums = (len(noise), self._spec.num_actions), probabilities.sum(-1)
            wrong = probabilities.shape != shape or not torch.allclose(sums, torch.ones_like(sums), atol=0.01)
            found = f"shape {tuple(probabilities.shape)} and sums {sums[:3].tolist()}"
            refuse(wrong, f"{type(self).__name__}.action_probabilities: {found}; must be of shape {shape} and sum 1")
        return draw_possible(probabilities, noise), carry

    def act_in_evaluation(self, step: Step, noise: Tensor, sample_probability: float) -> Tensor:
        """Sample with probability `sample_probability`, else take the most probable action."""
        return draw_possible(sampled_or_greedy(self.action_probabilities(step), sample_probability), noise)

    def action_probabilities(self, step: Step) -> Tensor:
        """Distribution that `act` samples from, `[B, A]`; B is any multiple of L."""
        raise NotImplementedError

    def targets(self, rollout: Rollout, carry: Any = ()) -> dict[str, Tensor]:
        """Columns `[T, B, ...]` of an unroll, computed by the learners that played it, and cut into mini-batches like
        it; `carry` is that before the unroll."""
        return {}

    def recorded(self, transitions: Rollout, carry: Any) -> Rollout:
        """Transitions `[T, B]` that were played, as histories record them: a source that knows better actions may add
        them. `carry` is that before the first."""
        return transitions

    def update(self, sample: Sample) -> UpdateResult:
        """Improve every learner once on its windows; metrics are `[L]`."""
        raise NotImplementedError

    def parameters(self) -> Iterable[tuple[str, Tensor]]:
        """Names and parameters, `[L, ...]` each: of the network, or else numbers that are `saved`."""
        if self.network:
            return self.network.named_parameters()
        saved = {name: part for name in self.saved if isinstance(part := getattr(self, name), Tensor)}
        even = [name for name, part in saved.items() if part.numel() % self.num_learners == 0]
        return [(name, saved[name].reshape(self.num_learners, -1)) for name in even]

    def outputs(self) -> dict[str, Tensor]:
        """Outputs of networks or tables for every observation, if the observations can be listed."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in self.saved} | {"clock": list(self.clock)}
        return {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, which may lack the optimizer."""
        if "clock" in state:  # missing in A2C's checkpoints of older versions
            self.clock = Clock(*state["clock"])
        for name in (name for name in self.saved if name in state or name != "optimizer"):
            if isinstance(state[name], dict):
                getattr(self, name).load_state_dict(state[name])
            else:
                value = copy.deepcopy(state[name])
                setattr(self, name, value.to(self.device) if isinstance(value, Tensor) else value)
        self.refresh()

    def refresh(self) -> None:
        """Compute what depends on restored attributes."""

    def _per_learner(self, samples: Tensor) -> Tensor:
        """Mean over each learner's samples, `[T, B] -> [L]`."""
        return samples.unflatten(1, (self.num_learners, -1)).mean(dim=(0, 2))


def table_rows(num_learners: int, num_obs: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Function from observations `[..., B]` to their rows in a table `[L * S, ...]` over the learners' observations."""
    first = torch.arange(num_learners, device=device) * num_obs
    of_streams = cache(partial(torch.repeat_interleave, first))  # by the number of streams of a learner

    def rows(obs: Tensor) -> Tensor:
        if obs.shape[-1] % num_learners:
            raise ValueError(f"{obs.shape[-1]} streams cannot be divided evenly among {num_learners} learners")
        return of_streams(obs.shape[-1] // num_learners) + obs

    return rows
