"""Policies from theory that learn in context: Thompson sampling and upper confidence bounds in bandits, and posterior
sampling in random MDPs. All count over the whole stream.

B streams, C contexts, A arms or actions, d features, S states, M steps an episode.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl import extensions
from icrl.contracts import Step
from icrl.evaluation.references import searchers_in
from icrl.extensions.worlds.key_to_door import DarkKeyToDoor
from icrl.extensions.worlds.random_mdps import RandomMDP
from icrl.randomness import mix, normal, seeds_of, several, uniform
from icrl.spaces import EnvSpec

_TRIES = 8  # candidates for each gamma number; all are rejected once in 10^10 times
_WIDTH = 1 + math.sqrt(math.log(2 / 0.1) / 2)  # deviations that LinUCB adds, for delta = 0.1


class Pulls(NamedTuple):
    """Statistics of the arms of each stream."""

    count: Tensor  # [B, C, A] float: pulls of each arm in each context
    total: Tensor  # [B, C, A] float: sum of its rewards
    context: Tensor  # [B] int64: of the last pull
    last: Tensor  # [B] int64: the arm pulled last


class BanditPolicy:
    """Policy that counts pulls and rewards and pulls the arm with the largest score."""

    def __init__(self, spec: EnvSpec, deviation: float | None) -> None:
        """`deviation` of the rewards of an arm; None: they are 0 or 1."""
        self._shape, self._deviation = (spec.num_obs, spec.num_actions), deviation

    def initial_carry(self, num_streams: int) -> Pulls:
        nothing, none = torch.zeros(num_streams, *self._shape), torch.zeros(num_streams, dtype=torch.long)
        return Pulls(nothing, nothing, none, none)

    def act(self, carry: Pulls, step: Step, noise: Tensor) -> tuple[Tensor, Pulls]:
        count, total, context, last = (column.to(noise.device) for column in carry)
        acted = (step.timestep > 0) | step.terminated | step.truncated  # false before a stream's first pull
        streams = torch.arange(len(last), device=last.device)
        pulled = torch.zeros_like(count)
        pulled[streams, context, last] = acted.float()
        count = count + pulled
        total = total + pulled * step.reward[:, None, None]
        action = self.scores(count, total, step.obs, noise).argmax(dim=1)
        return action, Pulls(count, total, step.obs, action)

    def replace_action(self, carry: Pulls, action: Tensor) -> Pulls:
        """The next reward is credited to the `action` `[B]` that was done."""
        return carry._replace(last=action)

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        """Scores `[B, A]` of the arms in the `context` `[B]`, after so many pulls with these sums of rewards,
        `[B, C, A]` each."""
        raise NotImplementedError


class ThompsonSampling(BanditPolicy):
    """Draws a mean for each arm from its posterior and pulls the arm with the largest (Thompson, 1933). For rewards 0
    and 1 that is Beta(1 + wins, 1 + losses). For rewards with a known `deviation` and the prior N(0, 1) it is
    N(r / (n + deviation^2), deviation^2 / (n + deviation^2)) after n pulls with rewards r in all; of the first arm
    `first_mean` may be known. Contexts share nothing."""

    def __init__(self, spec: EnvSpec, deviation: float | None, first_mean: float | None = None) -> None:
        super().__init__(spec, deviation)
        self._first_mean = first_mean

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        count, total = in_context(count, context), in_context(total, context)
        seed = mix(seeds_of(noise), 0)[:, None]  # many numbers from one
        seed = mix(seed, torch.arange(count.shape[1], device=noise.device))  # [B, A]
        if self._deviation is None:
            wins, losses = (gamma(1 + n, mix(seed, i)) for i, n in enumerate((total, count - total)))
            return wins / (wins + losses)
        variance = self._deviation**2
        drawn = total / (count + variance) + (variance / (count + variance)).sqrt() * normal(uniform(seed, 0))
        if self._first_mean is not None:
            drawn[:, 0] = self._first_mean
        return drawn


class UCB1(BanditPolicy):
    """Pulls every arm once, then the arm with the largest upper bound of its mean (Auer et al., 2002):

        mean + 2 * deviation * sqrt(2 * ln(t) / n)

    after t pulls in all and n of the arm, in each context by itself. For rewards from [0, 1], whose deviation is at
    most 1/2, this is UCB1."""

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        count, total = in_context(count, context), in_context(total, context)
        pulls = count.sum(dim=1, keepdim=True).clamp(min=1)
        bound = total / count + 2 * (self._deviation or 0.5) * (2 * pulls.log() / count).sqrt()
        return bound.masked_fill(count == 0, math.inf)


class _LinearPolicy(BanditPolicy):
    """Policy for a linear bandit, where an arm with features phi pays theta . phi plus noise of deviation s. With the
    prior theta ~ N(0, I) the posterior of theta is N(P^-1 b, P^-1) (Agrawal and Goyal, 2013, arXiv 1209.3352):

        P = I + sum_t phi_t phi_t^T / s^2,    b = sum_t r_t phi_t / s^2
    """

    def __init__(self, spec: EnvSpec, deviation: float, features: Tensor) -> None:
        """`features` `[C, A, d]` of the arms in each context."""
        super().__init__(spec, deviation)
        self._features, self._variance = features, deviation**2

    def posterior(self, count: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `[B, d]` of theta, and the lower triangle L `[B, d, d]` of P = L L^T."""
        features = self._features.to(count)
        precision = torch.einsum("bca,cad,cae->bde", count, features, features) / self._variance
        precision = precision + torch.eye(features.shape[-1], device=count.device)
        summed = torch.einsum("bca,cad->bd", total, features) / self._variance
        lower = torch.linalg.cholesky(precision)
        return torch.cholesky_solve(summed[..., None], lower)[..., 0], lower

    def features_in(self, context: Tensor, like: Tensor) -> Tensor:
        """Features `[B, A, d]` of the arms in the `context` `[B]`."""
        return self._features.to(like)[context]


class LinearThompsonSampling(_LinearPolicy):
    """Draws theta from its posterior and pulls the arm with the largest mean for it."""

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        mean, lower = self.posterior(count, total)
        drawn = normal(several(noise, mean.shape[1]))[..., None]  # L^-T x ~ N(0, P^-1) for x ~ N(0, I)
        theta = mean + torch.linalg.solve_triangular(lower.mT, drawn, upper=True)[..., 0]
        return torch.einsum("bad,bd->ba", self.features_in(context, count), theta)


class LinUCB(_LinearPolicy):
    """Pulls the arm with the largest upper bound of its mean (Li et al., 2010, arXiv 1003.0146):

    mean . phi + alpha * sqrt(phi^T P^-1 phi),    alpha = 1 + sqrt(ln(2 / delta) / 2)
    """

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        mean, lower = self.posterior(count, total)
        features = self.features_in(context, count)
        deviation = torch.linalg.solve_triangular(lower, features.mT, upper=False).norm(dim=1)  # [B, A]
        return torch.einsum("bad,bd->ba", features, mean) + _WIDTH * deviation


def in_context(statistics: Tensor, context: Tensor) -> Tensor:
    """Statistics `[B, C, A]` of the arms in the `context` `[B]`, `[B, A]`."""
    return statistics[torch.arange(len(context), device=context.device), context]


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
    entered: one visit shows both. As many states pay 1 as in the world, never the start: those that were not found yet
    are among the states that were not entered, all sets equally likely. Of the latter, those that pay end an episode if
    they do in the world, and the others are assumed to end nothing."""

    def __init__(self, env: RandomMDP) -> None:
        self._sizes = env.num_states, env.spec.num_actions, env.spec.max_episode_steps
        self._num_paying, self._goal_ends, self._start = env.num_paying, env.goal_ends, int(env.starts[0])

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
        luck = uniform(mix(seeds, -1)[:, None], torch.arange(num_states, device=count.device))
        luck = luck.masked_fill(paid.isfinite(), torch.inf)  # entered before
        luck[:, self._start] = torch.inf
        missing = self._num_paying - (paid > 0).sum(-1, keepdim=True)
        hoped = luck.isfinite() & (luck.argsort(-1).argsort(-1) < missing)
        reward, ends = paid.nan_to_num(0.0) + hoped, ends | (hoped & self._goal_ends)
        value, actions = torch.zeros_like(reward), list[Tensor]()
        for _ in range(num_steps):
            returns = (drawn.flatten(1, 2) @ (reward + value)[..., None]).view(-1, num_states, num_actions)
            value, action = returns.max(dim=-1)
            value = value.masked_fill(ends, 0.0)
            actions.append(action)
        return torch.stack(actions[::-1], dim=1)


def gamma(shape: Tensor, seed: Tensor) -> Tensor:
    """Gamma(shape, 1) numbers for shapes of at least 1, one for each seed (Marsaglia and Tsang, "A simple method for
    generating gamma variables", 2000): d * v with v = (1 + c * x)^3 for the first x ~ N(0, 1) that is accepted."""
    d = shape - 1 / 3
    c = 1 / (9 * d).sqrt()
    drawn = torch.zeros_like(shape)
    for attempt in range(_TRIES - 1, -1, -1):  # the first that is accepted comes last and stays
        x, u = normal(uniform(seed, 2 * attempt)), uniform(seed, 2 * attempt + 1)
        v = (1 + c * x).clamp(min=1e-9) ** 3
        accepted = (1 + c * x > 0) & (u.log() < x.square() / 2 + d * (1 - v + v.log()))
        drawn = torch.where(accepted, d * v, drawn)
    return drawn


def dirichlet(shape: Tensor, seed: Tensor) -> Tensor:
    """Dirichlet numbers `[..., S]` with positive parameters `shape`, one for each `seed`: normalised Gamma numbers. A
    Gamma(a) number is a Gamma(a + 1) number times U^(1/a) (Marsaglia and Tsang, 2000, section 6)."""
    drawn = gamma(shape + 1, mix(seed, 0)) * uniform(mix(seed, 1), 0) ** (1 / shape)
    return drawn / drawn.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(drawn.dtype).tiny)


if "searchers" in extensions.NAMES:
    from icrl.extensions.searchers.rooms import RoomSearcher

    @searchers_in.register
    def _(env: DarkKeyToDoor) -> dict[str, Any]:
        return {"searcher": RoomSearcher(env)}


@searchers_in.register
def _(env: RandomMDP) -> dict[str, Any]:
    return {"PSRL": PosteriorSamplingRL(env)}
