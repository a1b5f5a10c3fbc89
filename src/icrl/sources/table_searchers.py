"""Posterior sampling in random MDPs: a policy that learns in context with a perfect memory of its stream.

B streams, S states, A actions, M steps an episode.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.tables import RandomMDP
from icrl.randomness import mix, seeds_of, uniform
from icrl.sources.bandit_policies import gamma


class Knowledge(NamedTuple):
    """Statistics of each stream, and its plan for this episode."""

    count: Tensor  # [B, S, A, S] float: transitions
    paid: Tensor  # [B, S] float: reward on entering a state, NaN before the first time
    ends: Tensor  # [B, S] bool: entering it has ended an episode
    plan: Tensor  # [B, M, S] int64: actions
    obs: Tensor  # [B] int64: state of the last action
    last: Tensor  # [B] int64: the last action


class PosteriorSamplingRL:
    """PSRL (Osband, Russo and Van Roy, 2013, arXiv 1306.0940): at the start of each episode it draws an MDP from its
    posterior and plans in it; it follows the plan until the episode ends.

    Transitions have a Dirichlet prior of 1 / S for each next state. Rewards and ends belong to the state that is
    entered: one visit shows both. A state that was not entered pays 1 with the share of the world's states that do,
    and is assumed to end nothing."""

    def __init__(self, env: RandomMDP) -> None:
        self._sizes = env.num_states, env.spec.num_actions, env.spec.max_episode_steps
        self._share = env.reward_share

    def initial_carry(self, num_streams: int) -> Knowledge:
        num_states, num_actions, num_steps = self._sizes
        zero = torch.zeros(num_streams, dtype=torch.long)
        unknown = torch.full((num_streams, num_states), torch.nan)
        count = torch.zeros(num_streams, num_states, num_actions, num_states)
        plan = torch.zeros(num_streams, num_steps, num_states, dtype=torch.long)
        return Knowledge(count, unknown, torch.zeros_like(unknown).bool(), plan, zero, zero)

    def act(self, carry: Knowledge, step: Step, noise: Tensor) -> tuple[Tensor, Knowledge]:
        count, paid, ends, plan, obs, last = (column.to(noise.device) for column in carry)
        acted = ((step.timestep > 0) | step.terminated | step.truncated).nonzero()[:, 0]  # not before a first action
        count, paid, ends, plan = count.clone(), paid.clone(), ends.clone(), plan.clone()
        landed = step.final_obs[acted]
        count[acted, obs[acted], last[acted], landed] += 1
        paid[acted, landed] = step.reward[acted]
        ends[acted, landed] |= step.terminated[acted]
        begun = (step.timestep == 0).nonzero()[:, 0]
        plan[begun] = self._planned(count[begun], paid[begun], ends[begun], seeds_of(noise[begun]))
        action = plan[torch.arange(len(noise), device=noise.device), step.timestep, step.obs]
        return action, Knowledge(count, paid, ends, plan, step.obs, action)

    def replace_action(self, carry: Knowledge, action: Tensor) -> Knowledge:
        """The next transition is credited to the `action` `[B]` that was done."""
        return carry._replace(last=action)

    def _planned(self, count: Tensor, paid: Tensor, ends: Tensor, seeds: Tensor) -> Tensor:
        """Best actions `[B, M, S]` in MDPs drawn from the posterior, by backward induction: with k steps left,
        Q_k(s, a) = sum_s' p(s' | s, a) (r(s') + V_{k-1}(s')), where V_k(s) = max_a Q_k(s, a), or 0 if s is an end."""
        num_states, num_actions, num_steps = self._sizes
        numbers = torch.arange(count.shape[1:].numel(), device=count.device).view(count.shape[1:])
        drawn = dirichlet(count + 1 / num_states, mix(seeds.view(-1, 1, 1, 1), numbers))
        hoped = uniform(mix(seeds, -1)[:, None], torch.arange(num_states, device=count.device)) < self._share
        reward = torch.where(paid.isnan(), hoped.float(), paid)
        value, actions = torch.zeros_like(reward), list[Tensor]()
        for _ in range(num_steps):
            returns = (drawn.flatten(1, 2) @ (reward + value)[..., None]).view(-1, num_states, num_actions)
            value, action = returns.max(dim=-1)
            value = value.masked_fill(ends, 0.0)
            actions.append(action)
        return torch.stack(actions[::-1], dim=1)


def dirichlet(shape: Tensor, seed: Tensor) -> Tensor:
    """Dirichlet numbers `[..., S]` with positive parameters `shape`, one for each `seed`: normalised Gamma numbers. A
    Gamma(a) number is a Gamma(a + 1) number times U^(1/a) (Marsaglia and Tsang, 2000, section 6)."""
    drawn = gamma(shape + 1, mix(seed, 0)) * uniform(mix(seed, 1), 0) ** (1 / shape)
    return drawn / drawn.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(drawn.dtype).tiny)
