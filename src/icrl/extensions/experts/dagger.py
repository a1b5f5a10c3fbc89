"""Dataset aggregation (DAgger; Ross, Gordon and Bagnell, 2011, "A reduction of imitation learning and structured
prediction to no-regret online learning", arXiv 1011.0686): a trained in-context model plays on the training tasks, and
an expert that sees the task labels every step with what it would do there,

    D <- D + {(h_t, pi_expert(s_t)) : h_t, s_t as the model meets them}

Histories of an expert show only what happens to an agent that knows the task. These show the model's own mistakes, what
they were paid, and how to go on after them. `run` and `policy.*` choose the model, as in evaluations. Train on both:
`objective=dpt histories=[RUN,NAME]`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from icrl.api import load
from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.contracts import ConfigError, Env, Sample, Step, UpdateResult
from icrl.extensions.experts.noise_distillation import UnlearnedConfig, check_planner
from icrl.nn.cache import Cache
from icrl.nn.gpt import Window
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy, InContextPolicy
from icrl.runs.files import check_same
from icrl.sources import source
from icrl.sources.learners import Learner
from icrl.sources.options import named


class DaggerConfig(UnlearnedConfig):
    in_context: ClassVar[bool] = True

    name: Literal["dagger"] = named("dagger")

    def inputs(self, config: Config) -> dict[str, str]:
        return {"run": _opened(config).about["state_sha256"], "policy.temperature": str(config.policy.temperature)}


@source("dagger", DaggerConfig)
class Dagger(Learner):
    """L learners that play as one trained model does, each stream in a context of its own."""

    player: GPTPolicy

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Learners with their model. Raises `ConfigError` if its world has other options, or no optimal action."""
        learners = super().create(config, env, tasks, seeds, device)
        check_planner(config)
        learners.player = _opened(config).policy
        learners.player.model.to(device)
        return learners

    def initial_carry(self, num_streams: int) -> Any:
        """Contexts as tensors and numbers, which checkpoints may hold."""
        super().initial_carry(num_streams)
        return _plain(self.player.initial_carry(num_streams))

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        window, columns, seen = carry
        cache = self._caches(len(noise))
        for one, (of_one, length) in zip(cache, columns, strict=True):
            one.columns, one.length = of_one, length
        action, after = self.player.act(GPTCarry(Window(*window), cache, seen), step, noise)
        return action, _plain(after)

    @cached_property
    def _caches(self) -> Callable[[int], Cache]:
        """Caches by the number of streams, as forms to be filled."""
        return lru_cache(self.player.model.new_cache)

    def update(self, sample: Sample) -> UpdateResult:
        """Nothing is learned."""
        return UpdateResult({})


def _plain(carry: GPTCarry) -> Any:
    """A context as tuples of tensors and numbers: columns of the window and of each cache, lengths, steps seen."""
    return tuple(carry.window), tuple((one.columns, one.length) for one in carry.cache), carry.seen


def _opened(config: Config) -> InContextPolicy:
    """The model that plays. Raises `ConfigError` unless it was trained in this world, with this split."""
    where, policy = f"run={config.run}", config.policy
    refuse(config.run == config.name, f"name={config.name}: {where} plays, so these histories need another name")
    try:
        opened = load(config.run_folder, model=policy.model, temperature=policy.temperature)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    check_same(config, opened.about["description"]["config"], ("env", "tasks"), where)
    return opened
