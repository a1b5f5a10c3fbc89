"""Policies played beside the model: references, and probes of the frozen model that show how it uses its context.

Probes are other decodings, and ablations of the context. Streams end episodes at different times. When an ablation
replaces the context of some streams, these alone are read again, exactly: one forward over the context per episode of a
stream, or per step if the context is wiped.

B streams, n of them that begin an episode, T steps in context or of a life.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, singledispatch
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from icrl.collection.collect import SampledOrGreedy
from icrl.config.modules import load_plugins
from icrl.contracts import Policy, Rollout, Step
from icrl.envs.core import TensorEnv
from icrl.envs.policies import Chance, Planner
from icrl.evaluation.in_context import BLOCK, play_steps
from icrl.evaluation.measures import Exact
from icrl.evaluation.protocol import TEMPERATURE, decoding_name
from icrl.evaluation.trained import policy_of
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.gpt_policy import Acting, GPTCarry, GPTPolicy
from icrl.randomness import mix, seeds_of
from icrl.sources.learners import Learner

if TYPE_CHECKING:
    from icrl.app.root import Config

AGENTS: list[Callable[[Config, Tensor], dict[str, Learner]]] = []  # of extensions: learners of all tasks at once
# Exact results of random and of optimal play in a world on tasks `[N, task_dim]`; an extension computes them.
EXACT: list[Callable[[TensorEnv, Tensor], Exact]] = []

# The new past `[n, T, ...]` of n streams, given their past, the indices of the streams `[n]`, the number of steps they
# played, and their noise `[n]`.
Rewrite = Callable[[Window, Tensor, int, Tensor], Window]


@singledispatch
def searchers_in(env: Any) -> dict[str, Policy[Any]]:
    """Policies that know the rules of the world `env`, most of which learn its task in context, by name; none unless an
    extension registers a function for its class."""
    return {}


def references_of(env: TensorEnv) -> dict[str, Policy[Any]]:
    """Policies to play beside the model, by name: random play and that of the planner if there is one, unless both are
    computed, and searchers."""
    load_plugins()
    searchers = searchers_in(env)
    if is_computed(env) or "random" in searchers:
        return searchers
    best = {env.best_name: Planner()} if env.has_planner else {}
    return {"random": Chance(env.spec)} | best | searchers


def agents_of(config: Config, tasks: Tensor) -> dict[str, Policy[Any]]:
    """Agents that learned all tasks at once, for `tasks` `[G, task_dim]`. They choose their most probable actions."""
    agents = [found for find in AGENTS for found in find(config, tasks).items()]
    return {name: SampledOrGreedy(learner, 0.0) for name, learner in agents}


def is_computed(env: TensorEnv) -> bool:
    """True if there are `exact_references`."""
    load_plugins()
    return env.is_exact and bool(EXACT)


def exact_references(env: TensorEnv, tasks: Tensor) -> Exact:
    """Exact results of random and of optimal play on `tasks` `[N, task_dim]`; empty if they cannot be computed."""
    return EXACT[-1](env, tasks) if is_computed(env) else {}


def probes_for(config: Config, model: GPT | Acting, env: TensorEnv, tasks: Tensor) -> dict[str, Policy[Any]]:
    """The configured probes by the names of `protocol.summarise`, for `evaluation.num_probe_streams` streams of each
    of `tasks` `[G, task_dim]`. A single task has no other task for the ablation `other_task`."""
    options, plain = config.evaluation, policy_of(config, model)
    probes: dict[str, Policy[Any]] = {}
    for temperature in options.temperatures:
        name = decoding_name(temperature, 1.0)
        if name != decoding_name(plain.temperature, plain.sample_probability):
            sampled, kept = float(temperature > 0), config.policy.context_kept
            probes[TEMPERATURE + name] = GPTPolicy(model, sampled, temperature or 1.0, kept)
    episode_steps, num_streams = env.spec.max_episode_steps, options.num_probe_streams
    num_steps = -(-options.num_episodes * episode_steps // BLOCK) * BLOCK + episode_steps  # the last episode may go on

    if options.ablations:
        probes |= {"blank": Blanked(plain), "shuffled": Rewritten(plain, shuffled), "wiped": Wiped(plain)}
        life = partial(play_steps, plain, env, tasks, num_streams, num_steps, config.seed)
        if len(tasks) > 1:
            probes["other_task"] = Rewritten(plain, OtherLife(life, num_streams))
    return probes


class Blanked:
    """Policy that reads the same reward at every step, the one nearest to 0 (an episode may still end at a success)."""

    def __init__(self, policy: GPTPolicy) -> None:
        self.policy = policy
        self.initial_carry = policy.initial_carry
        self.reward = min(policy.model.spec.reward_values or (0.0,), key=abs)

    def act(self, carry: GPTCarry, step: Step, noise: Tensor) -> tuple[Tensor, GPTCarry]:
        return self.policy.act(carry, step._replace(reward=torch.full_like(step.reward, self.reward)), noise)


class Rewritten:
    """Policy that begins each episode on a rewritten past of the same length. Its logits are those of one forward over
    the rewritten context."""

    def __init__(self, policy: GPTPolicy, rewrite: Rewrite) -> None:
        self.policy, self.rewrite = policy, rewrite

    def initial_carry(self, num_streams: int) -> tuple[GPTCarry, int]:
        """Context of the policy, and the number of steps played."""
        return self.policy.initial_carry(num_streams), 0

    @torch.no_grad()
    def act(self, carry: tuple[GPTCarry, int], step: Step, noise: Tensor) -> tuple[Tensor, tuple[GPTCarry, int]]:
        context, time = carry
        window, cache, num_steps = context
        begun, model = (step.timestep == 0).nonzero()[:, 0], self.policy.model
        if num_steps and len(begun):
            window.reward[:, num_steps - 1] = step.reward
            past = self.rewrite(window.at((begun, np.s_[:num_steps])), begun, time, noise[begun])
            window.write((begun, np.s_[:num_steps]), past)
            step = step._replace(reward=window.reward[:, num_steps - 1])
            if num_steps < model.config.context_len:  # a full context is read again in any case
                anew = model.new_cache(len(begun))
                model(context_of(past), anew)
                cache.replace(begun, cast(Any, anew))  # of the same kind, as it is of the same model
        action, context = self.policy.act(context, step, noise)
        return action, (context, time + 1)


class Wiped:
    """Policy that begins each episode on an empty context: stream by stream it equals a fresh policy that starts there.

    Streams are at different steps of their episodes. Each is read again at every step from the left end of its window
    `[B, T, ...]`, of which `[B]` steps are filled; steps to the right of its newest one do not reach it."""

    def __init__(self, policy: GPTPolicy) -> None:
        self.policy = policy

    def initial_carry(self, num_streams: int) -> tuple[Window, Tensor]:
        window = self.policy.initial_carry(num_streams).window
        return window, torch.zeros(num_streams, dtype=torch.long, device=window.timestep.device)

    @torch.no_grad()
    def act(self, carry: tuple[Window, Tensor], step: Step, noise: Tensor) -> tuple[Tensor, tuple[Window, Tensor]]:
        (window, num_steps), model, num_kept = carry, self.policy.model, self.policy.num_kept
        streams = torch.arange(len(step.obs), device=num_steps.device)
        window.reward[streams, (num_steps - 1).clamp(min=0)] = step.reward  # read only after a step was taken
        num_steps = num_steps.masked_fill(step.timestep == 0, 0)
        full = (num_steps == model.config.context_len).nonzero()[:, 0]
        window.write((full, np.s_[:num_kept]), window.at((full, np.s_[-num_kept:])))
        num_steps = num_steps.index_fill(0, full, num_kept)
        window.obs[streams, num_steps], window.timestep[streams, num_steps] = step.obs, step.timestep
        read = model(context_of(window.at(np.s_[:, : int(num_steps.max()) + 1])))
        action = self.policy.choose(read[streams, num_steps], step.obs, noise)
        window.action[streams, num_steps] = action
        return action, (window, num_steps + 1)


def shuffled(window: Window, begun: Tensor, time: int, noise: Tensor) -> Window:
    """Rewrite that puts the transitions in an order drawn from the stream's noise."""
    num_steps = window.timestep.shape[1]
    keys = mix(seeds_of(noise)[:, None], torch.arange(num_steps, device=noise.device))
    streams, order = torch.arange(len(noise), device=noise.device)[:, None], keys.argsort(dim=1)
    return window.at((streams, order))


class OtherLife:
    """Rewrite that inserts the past of another stream, up to an end of one of its episodes: the first end that is not
    before the current time."""

    def __init__(self, life: Callable[[], Rollout], shift: int) -> None:
        """`life()`: `[T, B]` transitions from their start. A stream takes the past of the one `shift` places further:
        with the number of streams per task, the one with its own number on the next task."""
        self._life, self._shift = life, shift

    @cached_property
    def _window_and_ends(self) -> tuple[Window, Tensor]:
        """Window `[B, T, ...]`, and for each step `[B, T]` the first end after that many steps or more."""
        life = self._life()
        window = Window(*(column.transpose(0, 1).roll(-self._shift, dims=0) for column in Window.of(life)))
        ended = (life.terminated | life.truncated).T.roll(-self._shift, dims=0)
        numbers = torch.arange(1, ended.shape[1] + 1, device=ended.device).expand_as(ended)
        later = numbers.masked_fill(~ended, ended.shape[1] + 1).flip(1).cummin(dim=1).values
        return window, later.flip(1)

    def __call__(self, window: Window, begun: Tensor, time: int, noise: Tensor) -> Window:
        lived, ends = self._window_and_ends
        back = torch.arange(-window.timestep.shape[1], 0, device=begun.device)
        return lived.at((begun[:, None], ends[begun, time - 1, None] + back))
