"""The in-context model as a policy, which learns from its context alone.

A full context is *rebuilt*: its newest part is read again into an empty cache, as a window that starts there. (A rolled
cache would not do, because the keys of deeper layers would still carry the dropped steps.) At every step the logits
equal one uncached forward over the steps since the start of the last rebuild.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from icrl.config.options import Name, Options, option
from icrl.contracts import Json, Step
from icrl.envs.steps import check_form, check_ranges, step_of
from icrl.nn.cache import Cache
from icrl.nn.gpt import GPT, Context, GPTConfig, Window, context_of
from icrl.randomness import Noise, draw_possible, sampled_or_greedy, several, stream_seeds
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config


class PolicyConfig(Options):
    model: Name = option("gpt", "model that acts: gpt (of stage two), finetuned (of trials), or one of an extension")
    advantage_scale: float = option(
        0.0, "factor of advantages added to the logits (0: none); needs a critic from an extension", ge=0
    )
    temperature: float = option(1.0, "sampling temperature of actions", ge=0.001)
    context_kept: float = option(0.75, "fraction of a full context that is kept when it is rebuilt", ge=0.01, le=0.99)


class Acting(nn.Module):
    """A model of an extension that acts, with the interface of a `GPT` for Discrete actions."""

    config: GPTConfig
    spec: EnvSpec

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def new_cache(self, num_streams: int) -> Cache:
        raise NotImplementedError


class GPTCarry(NamedTuple):
    """Context of B streams: a window of transitions and its cache.

    `seen` steps are filled, the last of them without its reward. It belongs to one rollout, which writes in place."""

    window: Window
    cache: Cache
    seen: int


class GPTPolicy:
    def __init__(self, model: GPT | Acting, sample_probability: float, temperature: float, context_kept: float) -> None:
        """An action is sampled at `temperature` with `sample_probability`, else it is the most probable one."""
        self.model, self.sample_probability, self.temperature = model.eval(), sample_probability, temperature
        self.num_kept = kept_of(model.config.context_len, context_kept)

    def initial_carry(self, num_streams: int) -> GPTCarry:
        window = Window.empty(self.model.spec, num_streams, self.model.config.context_len, self.model.device)
        return GPTCarry(window, self.model.new_cache(num_streams), 0)

    def act(self, carry: GPTCarry, step: Step, noise: Tensor) -> tuple[Tensor, GPTCarry]:
        """Actions `[B, *action_shape]` for `step` (`step_of` makes your own). Raises `ValueError` for wrong shapes,
        dtypes and, on a CPU, values out of range."""
        check_form(self.model.spec, step, len(carry.window.timestep))
        if noise.shape != (expected := step.reward.shape):
            raise ValueError(f"noise is {tuple(noise.shape)}: must be {tuple(expected)}, one number per stream")
        if step.obs.is_cpu:
            check_ranges(self.model.spec, step)
        for one in () if carry.seen else carry.cache:
            one.begin(noise)
        logits, carry = self.logits(carry, step)
        action = self.choose(logits, step.obs, noise)
        return action, self.replace_action(carry, action)

    def replace_action(self, carry: GPTCarry, action: Tensor) -> GPTCarry:
        """Replace the last action in the context by `action` `[B, *action_shape]`, the one that was done."""
        carry.window.action[:, carry.seen - 1] = action
        return carry

    def choose(self, logits: Tensor, obs: Tensor, noise: Tensor) -> Tensor:
        """Legal actions `[B, *action_shape]` on `obs` by the parameters of the head, `logits` `[B, P]`."""
        model = self.model
        if isinstance(model, GPT) and not isinstance(model.spec.action_space, Discrete):
            numbers = several(noise, model.head.num_noise + 1)
            drawn = model.head.sample(logits, numbers[:, 1:], self.temperature)
            chosen = torch.where(numbers[:, :1] < self.sample_probability, drawn, model.head.mode(logits))
            return chosen.to(model.spec.action_dtype)  # of parameters in float64, too
        logits = model.spec.legal_of(logits[:, : model.spec.num_actions], obs)  # a head may predict more
        return draw_possible(sampled_or_greedy((logits / self.temperature).softmax(-1), self.sample_probability), noise)

    @torch.no_grad()
    def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
        """Parameters `[B, P]` of the head for `step` (of Discrete actions: logits), and the carry with `step` in it."""
        window, cache, seen = carry
        if seen:
            window.reward[:, seen - 1] = step.reward
        if seen == self.model.config.context_len:
            newest = torch.arange(seen - self.num_kept, seen, device=self.model.device)
            kept = window.at((slice(None), newest))  # a copy, because old and new places overlap
            window.write(np.s_[:, : self.num_kept], kept)
            cache.clear()
            seen = self.num_kept
            self.model(context_of(kept), cache)
        window.obs[:, seen], window.timestep[:, seen] = step.obs, step.timestep
        last_two = context_of(window.at(np.s_[:, max(seen - 1, 0) : seen + 1]))
        newest = Context(*(column[:, -1:] for column in last_two))
        return self.model(newest, cache)[:, -1], GPTCarry(window, cache, seen + 1)


def kept_of(length: int, share: float) -> int:
    """Steps of a full context of `length` that are kept when it is rebuilt."""
    return max(1, min(int(share * length), length - 1))


class InContextPolicy:
    """Frozen model that learns from its context, for B streams of a Gymnasium environment.

    The context holds the streams' past over all their episodes. `reset` empties it.
    """

    def __init__(self, policy: GPTPolicy, config: Config, about: Json, seed: int = 0) -> None:
        """`about` is the sidecar of the checkpoint. Its description has the split of tasks that the model was trained
        with, here `tasks`: rows of `all` tasks under `train` and `held_out`."""
        self.policy, self.config, self.about, self.seed = policy, config, about, seed
        self.tasks, self.spec = about["description"]["tasks"], policy.model.spec  # of the world that the model reads
        self.reset()

    def __repr__(self) -> str:
        model, spec = self.policy.model, self.spec
        size = sum(parameter.numel() for parameter in model.parameters())
        return (
            f"<InContextPolicy of {self.config.env.name}, {self.config.policy.model}: observations "
            f"{spec.observation_space}, actions {spec.action_space}; tokens {model.config.tokens}, context "
            f"{model.config.context_len} steps; {size:,} parameters>"
        )

    def reset(self, num_streams: int = 1) -> None:
        """Empty the context, and make one for `num_streams` streams."""
        self._carry: GPTCarry = self.policy.initial_carry(num_streams)
        self._noise = Noise(stream_seeds(self.seed, num_streams, purpose=4))
        self._timestep = torch.zeros(num_streams, dtype=torch.long)
        self._started = False

    def act(
        self, obs: Any, reward: Any = None, terminated: Any = None, truncated: Any = None
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """Choose actions `[B, *action_shape]`, int64 or in a Box float32, for observations `obs` `[B, *obs_shape]`.

        `reward` `[B]` and the flags `terminated` and `truncated` `[B]` are the answer to the action before; leave them
        out in the first step only. Where an episode ended, `obs` is the first observation of the next one (Gymnasium's
        SAME_STEP mode). Raises `ValueError` for wrong shapes, and for observations or rewards that the model does not
        know; the context stays as it was."""
        spec, device, timestep = self.spec, self.policy.model.device, self._timestep
        seen = column_of("obs", obs, (len(timestep), *spec.obs_shape), spec.obs_dtype)
        answer = {"reward": reward, "terminated": terminated, "truncated": truncated}
        missing = [name for name, value in answer.items() if value is None]
        if not self._started and len(missing) < len(answer):
            early = " and ".join(name for name in answer if name not in missing)
            raise ValueError(f"{early} in the first step after `reset`: there was no action yet; call act(obs)")
        if self._started and missing:
            how = "call act(obs, reward, terminated, truncated) with what env.step returned for the action before"
            raise ValueError(f"{'=None, '.join(missing)}=None after an action: {how}, or `reset` for a new context")
        others: dict[str, Tensor] = {}
        if self._started:
            types = {"reward": torch.float32, "terminated": torch.bool, "truncated": torch.bool}
            paid, *ends = (column_of(name, answer[name], timestep.shape, kind) for name, kind in types.items())
            timestep = torch.where(ends[0] | ends[1], 0, timestep + 1)
            if (longest := int(timestep.max())) >= (most := spec.max_episode_steps):
                over = f"episodes of this model's world end after {most} steps: give truncated there"
                raise ValueError(f"truncated is false after {longest} steps in some stream: {over}")
            if spec.reward_values:
                values, paid = paid, spec.reward_of(spec.reward_index(paid))
                if not np.allclose(paid, values):
                    known = [*spec.reward_values]
                    raise ValueError(f"reward={values.tolist()}: the model knows only the rewards {known}")
            others = {"reward": paid.to(device), "timestep": timestep.to(device)}
        step = step_of(spec, obs=seen.to(device), **others)
        self._started, self._timestep = True, timestep
        action, self._carry = self.policy.act(self._carry, step, next(iter(self._noise.draw(1))).to(device))
        return action.cpu().numpy()


def column_of(
    name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype, row: str = "stream; `reset` sets their number"
) -> Tensor:
    """Tensor of numbers that were given, with one `row` for each stream or task. Raises `ValueError` for another shape,
    and for what `dtype` cannot hold."""
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from error
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{name}={value!r}: must be numbers")
    if given.shape != shape:
        raise ValueError(f"{name} has the shape {given.shape}: must be {tuple(shape)}, one row for each {row}")
    with np.errstate(all="ignore"):
        column = given.astype(torch.empty(0, dtype=dtype).numpy().dtype)
    if dtype != torch.float32 and (changed := column != given).any():
        kinds = {torch.bool: "true or false", torch.uint8: "whole numbers from 0 to 255"}
        raise ValueError(f"{name} has {given[changed][0]}: must be {kinds.get(dtype, 'whole numbers')}")
    return torch.from_numpy(column)
