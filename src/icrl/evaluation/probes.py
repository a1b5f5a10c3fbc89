"""Other ways to play the frozen model, which show what its context does: decodings and ablations.

An ablation is the same model on a context that was tampered with. Streams end episodes at different times: where the
context of some is replaced, those alone are read anew, which is exact. It costs one forward over the context for each
episode of a stream, so that a step costs some context / episode length times what it costs otherwise; where the context
is wiped, some steps of an episode times, as it is read anew at each of them.

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
from icrl.nn.gpt import ACTION, GPT, OBS, REWARD, TIMESTEP, context_in, windows_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.nn.guided import Guided
from icrl.randomness import mix

if TYPE_CHECKING:
    from icrl.config.root import Config

_NOISE_BITS = 24  # of a policy's noise

# The past of n streams, `[rows, n, T]` (see `gpt.windows_of`), as it becomes, given what it was, the numbers of
# the streams `[n]`, how many steps they played, and their noise `[n]`.
Rewrite = Callable[[Tensor, Tensor, int, Tensor], Tensor]


def policy_of(config: Config, model: GPT | Guided) -> GPTPolicy:
    """The model, played as `config` says."""
    return GPTPolicy(model, config.evaluation.sample_probability, config.policy.temperature, config.policy.context_kept)


def probes_for(config: Config, model: GPT | Guided, env: TensorEnv, tasks: Tensor) -> dict[str, Policy[Any]]:
    """The probes `config` asks for, by the name `protocol.numbers_of` knows: other decodings, and ablations that act as
    `policy_of` does. They are for `evaluation.num_probe_streams` streams of each of `tasks` `[G, task_dim]`. With one
    task alone there is no context of another."""
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
    """Reads the same reward at every step, the one nearest to 0: no success is seen. (What else tells of one stays: an
    episode may end with it.)"""

    def __init__(self, policy: GPTPolicy) -> None:
        self.policy = policy
        self.initial_carry = policy.initial_carry
        values = policy.model.spec.reward_values
        self.reward = min(range(len(values)), key=lambda index: abs(values[index]))

    def act(self, carry: GPTCarry, step: Step, noise: Tensor) -> tuple[Tensor, GPTCarry]:
        return self.policy.act(carry, step._replace(reward=torch.full_like(step.reward, self.reward)), noise)


class RewrittenCarry(NamedTuple):
    context: GPTCarry
    time: int  # steps played


class Rewritten:
    """Begins each episode on a past that was rewritten: as many transitions as the context holds, others or in another
    order, in place of them. The logits are those of one forward over what then stands in the context."""

    def __init__(self, policy: GPTPolicy, rewrite: Rewrite) -> None:
        self.policy, self.rewrite = policy, rewrite

    def initial_carry(self, num_streams: int) -> RewrittenCarry:
        return RewrittenCarry(self.policy.initial_carry(num_streams), 0)

    def act(self, carry: RewrittenCarry, step: Step, noise: Tensor) -> tuple[Tensor, RewrittenCarry]:
        window, _, seen = carry.context
        begun = (step.timestep == 0).nonzero()[:, 0]
        if seen and len(begun):
            window[REWARD, :, seen - 1] = step.reward
            window[:, begun, :seen] = self.rewrite(window[:, begun, :seen], begun, carry.time, noise[begun])
            step = step._replace(reward=window[REWARD, :, seen - 1])
            if seen < self.policy.model.config.context_len:  # a full one is read anew in any case
                self._read_anew(carry.context, begun)
        action, context = self.policy.act(carry.context, step, noise)
        return action, RewrittenCarry(context, carry.time + 1)

    @torch.no_grad()
    def _read_anew(self, context: GPTCarry, streams: Tensor) -> None:
        """Make the cache of `streams` `[n]` that of their window."""
        model, (window, cache, seen) = self.policy.model, context
        anew = model.new_cache(len(streams))
        model(context_in(model.spec, window[:, streams, :seen]), anew)
        cache.replace(streams, cast(Any, anew))  # of the same kind, as it is of the same model


class WipedCarry(NamedTuple):
    """The contexts of B streams, of the episode they are in alone. Tensors are written in place."""

    window: Tensor  # [rows, B, T]
    seen: Tensor  # [B] int64: steps filled


class Wiped:
    """Begins each episode on an empty context. What it does is, stream by stream, what the policy does that starts with
    this episode.

    Streams are at different steps of theirs: each is read anew at every step, from the left end of its window, and
    what stands to the right of its newest step does not reach it."""

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
        window[REWARD, streams, (carry.seen - 1).clamp(min=0)] = step.reward  # read only where a step was taken
        seen = carry.seen.masked_fill(step.timestep == 0, 0)
        full = (seen == model.config.context_len).nonzero()[:, 0]
        window[:, full, :num_kept] = window[:, full, -num_kept:]
        seen = seen.index_fill(0, full, num_kept)
        window[OBS:, streams, seen] = step.obs if step.obs.ndim == 1 else step.obs.T
        window[TIMESTEP, streams, seen] = step.timestep
        read = model(context_in(model.spec, window[:, :, : int(seen.max()) + 1]))
        return read[streams, seen], WipedCarry(window, seen + 1)


def shuffled(window: Tensor, begun: Tensor, time: int, noise: Tensor) -> Tensor:
    """The same transitions in an order that is drawn from a stream's noise."""
    luck = mix((noise * (1 << _NOISE_BITS)).long()[:, None], torch.arange(window.shape[2], device=window.device))
    return window.gather(2, luck.argsort(dim=1).expand(len(window), -1, -1))


class OtherLife:
    """What another stream lived through: of its steps as many as are needed, up to where its first episode ended that
    ended no earlier than now."""

    def __init__(self, life: Rollout, num_streams: int) -> None:
        """`life`: `[T, G * S]` transitions of S = `num_streams` streams of each task, from their start; a stream takes
        over that with its number among the streams of the next task."""
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
