"""Probes of the frozen model that show how it uses its context: other decodings, and ablations of the context.

Streams end episodes at different times. When an ablation replaces the context of some streams, these alone are read
again, exactly: one forward over the context per episode of a stream, or per step if the context is wiped.

B streams, n of them that begin an episode, T steps in context or of a life.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from icrl.contracts import Policy, Rollout, Step
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import most_steps, play_steps
from icrl.evaluation.protocol import TEMPERATURE, decoding_name
from icrl.evaluation.trained import policy_of
from icrl.nn.gpt import ACTION, GPT, OBS, REWARD, TIMESTEP, context_in, windows_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy, Guided
from icrl.randomness import mix

if TYPE_CHECKING:
    from icrl.config.root import Config

_NOISE_BITS = 24  # random bits in a policy's noise

# The new past of n streams `[rows, n, T]` (see `gpt.windows_of`), given their past, the indices of the streams `[n]`,
# the number of steps they played, and their noise `[n]`.
Rewrite = Callable[[Tensor, Tensor, int, Tensor], Tensor]


def probes_for(config: Config, model: GPT | Guided, env: TensorEnv, tasks: Tensor) -> dict[str, Policy[Any]]:
    """The configured probes by the names of `protocol.numbers_of`, for `evaluation.num_probe_streams` streams of each
    of `tasks` `[G, task_dim]`. A single task has no other task for the ablation `other_task`."""
    options, plain = config.evaluation, policy_of(config, model)
    probes: dict[str, Policy[Any]] = {}
    for temperature in options.temperatures:
        name = decoding_name(temperature, 1.0)
        if name != decoding_name(plain.temperature, plain.epsilon):
            epsilon = float(temperature > 0)
            probes[TEMPERATURE + name] = GPTPolicy(model, epsilon, temperature or 1.0, config.policy.context_kept)
    if options.ablations:
        probes |= {"blank": Blanked(plain), "shuffled": Rewritten(plain, shuffled), "wiped": Wiped(plain)}
        if len(tasks) > 1:
            num_steps = most_steps(options.num_episodes, env.spec) + env.spec.max_episode_steps
            life = play_steps(plain, env, tasks, options.num_probe_streams, num_steps, config.seed)
            probes["other_task"] = Rewritten(plain, OtherLife(life, options.num_probe_streams))
    return probes


class Blanked:
    """Policy that reads the same reward at every step, the one nearest to 0 (an episode may still end at a success)."""

    def __init__(self, policy: GPTPolicy) -> None:
        self.policy = policy
        self.initial_carry = policy.initial_carry
        values = policy.model.spec.reward_values
        self.reward = min(range(len(values)), key=lambda index: abs(values[index]))

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
        window, cache, seen = context
        begun, model = (step.timestep == 0).nonzero()[:, 0], self.policy.model
        if seen and len(begun):
            window[REWARD, :, seen - 1] = step.reward
            window[:, begun, :seen] = self.rewrite(window[:, begun, :seen], begun, time, noise[begun])
            step = step._replace(reward=window[REWARD, :, seen - 1])
            if seen < model.config.context_len:  # a full context is read again in any case
                anew = model.new_cache(len(begun))
                model(context_in(model.spec, window[:, begun, :seen]), anew)
                cache.replace(begun, cast(Any, anew))  # of the same kind, as it is of the same model
        action, context = self.policy.act(context, step, noise)
        return action, (context, time + 1)


class WipedCarry(NamedTuple):
    """Contexts of B streams that hold the current episode alone. Tensors are written in place."""

    window: Tensor  # [rows, B, T]
    seen: Tensor  # [B] int64: steps filled


class Wiped:
    """Policy that begins each episode on an empty context: stream by stream it equals a fresh policy that starts there.

    Streams are at different steps of their episodes. Each is read again at every step from the left end of its window;
    steps to the right of its newest one do not reach it."""

    def __init__(self, policy: GPTPolicy) -> None:
        self.policy = policy

    def initial_carry(self, num_streams: int) -> WipedCarry:
        window = self.policy.initial_carry(num_streams).window
        return WipedCarry(window, torch.zeros(num_streams, dtype=torch.long, device=window.device))

    def act(self, carry: WipedCarry, step: Step, noise: Tensor) -> tuple[Tensor, WipedCarry]:
        logits, carry = self.logits(carry, step)
        action = self.policy.choose(logits, step.obs, noise)
        carry.window[ACTION, torch.arange(len(action), device=action.device), carry.seen - 1] = action
        return action, carry

    @torch.no_grad()
    def logits(self, carry: WipedCarry, step: Step) -> tuple[Tensor, WipedCarry]:
        """See `GPTPolicy.logits`."""
        window, model, num_kept = carry.window, self.policy.model, self.policy.num_kept
        streams = torch.arange(len(step.obs), device=window.device)
        window[REWARD, streams, (carry.seen - 1).clamp(min=0)] = step.reward  # read only after a step was taken
        seen = carry.seen.masked_fill(step.timestep == 0, 0)
        full = (seen == model.config.context_len).nonzero()[:, 0]
        window[:, full, :num_kept] = window[:, full, -num_kept:]
        seen = seen.index_fill(0, full, num_kept)
        window[OBS:, streams, seen] = step.obs if step.obs.ndim == 1 else step.obs.T
        window[TIMESTEP, streams, seen] = step.timestep
        read = model(context_in(model.spec, window[:, :, : int(seen.max()) + 1]))
        return read[streams, seen], WipedCarry(window, seen + 1)


def shuffled(window: Tensor, begun: Tensor, time: int, noise: Tensor) -> Tensor:
    """Rewrite that puts the transitions in an order drawn from the stream's noise."""
    keys = mix((noise * (1 << _NOISE_BITS)).long()[:, None], torch.arange(window.shape[2], device=window.device))
    return window.gather(2, keys.argsort(dim=1).expand(len(window), -1, -1))


class OtherLife:
    """Rewrite that inserts the past of a stream on the next task, up to an end of one of its episodes: the first end
    that is not before the current time."""

    def __init__(self, life: Rollout, num_streams: int) -> None:
        """`life`: `[T, G * S]` transitions of S = `num_streams` streams of each task, from their start. A stream takes
        the past of the stream with its number on the next task."""
        lived = (life.obs, life.action, life.reward, life.timestep)
        columns = windows_of(*(column.transpose(0, 1) for column in lived))  # [rows, B, T]
        self.columns = columns.roll(-num_streams, dims=1)
        ended = (life.terminated | life.truncated).T.roll(-num_streams, dims=0)
        numbers = torch.arange(1, ended.shape[1] + 1, device=ended.device).expand_as(ended)
        later = numbers.masked_fill(~ended, ended.shape[1] + 1).flip(1).cummin(dim=1).values
        self.ends = later.flip(1)  # [B, T]: column t - 1 has the first end after t or more steps

    def __call__(self, window: Tensor, begun: Tensor, time: int, noise: Tensor) -> Tensor:
        back = torch.arange(-window.shape[2], 0, device=window.device)
        return self.columns[:, begun[:, None], self.ends[begun, time - 1, None] + back]
