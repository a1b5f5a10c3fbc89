"""A model that plays worse than it could, and a world that is not what it learned. B streams, A actions."""

from typing import Any

import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.core import TensorEnv, choose_rows
from icrl.envs.policies import uniform_actions
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.randomness import integers, mix, several

_PURPOSE = 11  # of random numbers


class Noisy:
    """The `policy` with each action of the first `num_before` episodes replaced by a random one with probability
    `share`. It reads them as its own, so its context is that of a worse player."""

    def __init__(self, policy: GPTPolicy, share: float, num_before: int) -> None:
        self.policy, self.share, self.num_before = policy, share, num_before

    def initial_carry(self, num_streams: int) -> tuple[GPTCarry, Tensor]:
        """Context of the policy, and the number of episodes that each stream began."""
        begun = torch.zeros(num_streams, dtype=torch.long, device=self.policy.model.device)
        return self.policy.initial_carry(num_streams), begun

    def act(self, carry: tuple[GPTCarry, Tensor], step: Step, noise: Tensor) -> tuple[Tensor, tuple[GPTCarry, Tensor]]:
        context, begun = carry
        begun = begun + (step.timestep == 0)
        action, context = self.policy.act(context, step, noise)
        chance, which = several(noise, 2, _PURPOSE).unbind(1)
        other = uniform_actions(self.policy.model.spec, step.obs, which)
        action = choose_rows((chance < self.share) & (begun <= self.num_before), other, action)
        return action, (self.policy.replace_action(context, action), begun)


class OtherActions:
    """World whose actions do something else than in `env`, throughout a life: of A Discrete actions, a does what
    a + k mod A does there, with k from 1 to A - 1 drawn for each stream; numbers of other spaces are mirrored in their
    bounds. To random play it is the same world."""

    def __init__(self, env: TensorEnv) -> None:
        self._env, self.spec = env, env.spec

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[tuple[Any, Tensor], Step]:
        state, step = self._env.reset(tasks, seeds)
        space = self.spec.action_space
        number = int(space.n) if isinstance(space, Discrete) else 2
        shift = 1 + integers(mix(seeds, _PURPOSE), 0, number - 1)
        return (state, shift), self._seen(step, shift)

    def step(self, state: tuple[Any, Tensor], action: Tensor) -> tuple[tuple[Any, Tensor], Step]:
        inner, shift = state
        inner, step = self._env.step(inner, self._meaning(action, shift))
        return (inner, shift), self._seen(step, shift)

    def _seen(self, step: Step, shift: Tensor) -> Step:
        """The same step, with the action that does here what the best one does there."""
        best, box = step.optimal_action, isinstance(self.spec.action_space, Box)
        unknown = best.isnan() if box else best == self.spec.num_actions
        return step._replace(optimal_action=torch.where(unknown, best, self._meaning(best, -shift)))

    def _meaning(self, action: Tensor, shift: Tensor) -> Tensor:
        space = self.spec.action_space
        if isinstance(space, Discrete):
            return (action + shift) % int(space.n)
        if isinstance(space, MultiDiscrete):
            return torch.from_numpy(space.nvec).to(action) - 1 - action
        assert isinstance(space, Box)
        return torch.from_numpy(space.low + space.high).to(action) - action
