"""Probes of a frozen model that show how it uses its context: other decodings, and ablations of the context.

Streams end episodes at different times. When an ablation replaces the context of some streams, these alone are read
again, exactly: one forward over the context per episode of a stream, or per step if the context is wiped.

B streams, n of them that begin an episode, T steps in context or of a life.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import Policy, Rollout, Step
from icrl.evaluation.in_context import play_steps
from icrl.evaluation.protocol import TEMPERATURE, decoding_name
from icrl.evaluation.setup import Setup
from icrl.nn.gpt import Window, context_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.randomness import mix, seeds_of

# The new past `[n, T, ...]` of n streams, given their past, the indices of the streams `[n]`, the number of steps they
# played, and their noise `[n]`.
Rewrite = Callable[[Window, Tensor, int, Tensor], Window]


def probes_of(setup: Setup) -> dict[str, Policy[Any]]:
    """The configured probes by name, for `evaluation.num_probe_streams` streams of each task of the main part. A single
    task has no other task for the ablation `other_task`."""
    config, env, plain, tasks = setup.config, setup.env, setup.policy, setup.tasks[setup.main]
    options = config.evaluation
    probes: dict[str, Policy[Any]] = {}
    for temperature in options.temperatures:
        name = decoding_name(temperature, 1.0)
        if name != decoding_name(plain.temperature, plain.sample_probability):
            sampled, kept = float(temperature > 0), config.policy.context_kept
            probes[TEMPERATURE + name] = GPTPolicy(plain.model, sampled, temperature or 1.0, kept)
    episode_steps, num_streams = env.spec.max_episode_steps, options.num_probe_streams
    num_steps = (options.num_episodes + 2) * episode_steps  # of a stream that begins another one at the very end

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
