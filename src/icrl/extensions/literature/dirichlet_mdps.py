"""Random MDPs with gaussian rewards (Duan et al., 2016, arXiv 1611.02779, section 3.2), and posterior sampling in them.

N tasks, B streams, S states, A actions, M steps an episode.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Step
from icrl.envs.core import NAME, Outcomes, State, world
from icrl.envs.exact import Chance, Planner, best_actions
from icrl.evaluation.references import searchers_in
from icrl.extensions.worlds.learners import dirichlet
from icrl.extensions.worlds.random_mdps import RandomMDP, RandomMDPConfig
from icrl.randomness import cumulative, draw, mix, normal, seeds_of, uniform

PRIOR_MEAN = 1.0  # of the mean rewards, whose deviation is 1, as is that of a reward around its mean


class DirichletMDPConfig(RandomMDPConfig):
    name: Literal["dirichlet_mdp"] = option("dirichlet_mdp", NAME)


@world("dirichlet_mdp", DirichletMDPConfig)
class DirichletMDP(RandomMDP):
    """p(. | s, a) ~ Dirichlet(1, ..., 1) and mean rewards m(s, a) ~ N(1, 1); a reward is m(s, a) plus N(0, 1). Every
    episode starts in state 0, and only the clock ends it. No return counts as a success."""

    def __init__(self, config: DirichletMDPConfig) -> None:
        super().__init__(config, "end")
        self.spec = self.spec._replace(reward_values=())
        shape = (config.num_states, config.num_actions)
        gammas = -torch.log1p(-self.draw(0, *shape, config.num_states))  # Gamma(1) numbers
        self._probability = gammas / gammas.sum(dim=-1, keepdim=True)
        self.means = PRIOR_MEAN + normal(self.draw(1, *shape)).double()
        after = torch.arange(config.num_states).expand_as(gammas)
        mean = torch.arange(self.means.numel()).view(-1, *shape, 1).expand_as(gammas)
        rules = Outcomes(self._probability, after, mean, torch.zeros_like(mean, dtype=torch.bool))
        self._best = best_actions(rules, self.means.flatten(), config.max_episode_steps)

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        where, seed = (state.task[..., 0], state.inner, action), mix(state.seed, state.episode)
        after = draw(cumulative(self._probability[where]), uniform(mix(seed, 0), state.timestep))
        reward = self.means[where].float() + normal(uniform(mix(seed, 1), state.timestep))
        return after, reward, torch.zeros_like(reward, dtype=torch.bool)

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Mean rewards of the start."""
        return [str(means) for means in self.means[tasks[:, 0], 0].tolist()]

    def rewarded(self, task: Tensor) -> tuple[int, ...]:
        """No state: rewards belong to actions."""
        return ()


class Counts(NamedTuple):
    """Statistics of each stream, and its plan for this episode."""

    count: Tensor  # [B, S, A, S] float: transitions
    total: Tensor  # [B, S, A] float: sum of rewards
    plan: Tensor  # [B, M, S] int64: actions
    obs: Tensor  # [B] int64: state of the last action
    last: Tensor  # [B] int64: the last action


class GaussianPSRL:
    """PSRL (Osband, Russo and Van Roy, 2013, arXiv 1306.0940) with the world's own prior: at the start of each episode
    it draws an MDP from its posterior, plans in it and follows the plan.

        p(. | s, a) ~ Dirichlet(1 + n(s, a, .)),    m(s, a) ~ N((1 + r) / (1 + n), 1 / (1 + n))

    after n pulls of a in s with rewards r in all. Optimistic (OPSRL), no drawn mean reward is below that of the
    posterior (after May et al., 2012, "Optimistic Bayesian sampling in contextual-bandit problems")."""

    def __init__(self, env: DirichletMDP, optimistic: bool) -> None:
        self._sizes = env.num_states, env.spec.num_actions, env.spec.max_episode_steps
        self._optimistic = optimistic

    def initial_carry(self, num_streams: int) -> Counts:
        num_states, num_actions, num_steps = self._sizes
        zero = torch.zeros(num_streams, dtype=torch.long)
        total = torch.zeros(num_streams, num_states, num_actions)
        count = torch.zeros(*total.shape, num_states)
        return Counts(count, total, torch.zeros(num_streams, num_steps, num_states, dtype=torch.long), zero, zero)

    def act(self, carry: Counts, step: Step, noise: Tensor) -> tuple[Tensor, Counts]:
        count, total, plan, obs, last = (column.to(noise.device) for column in carry)
        acted = ((step.timestep > 0) | step.truncated).nonzero()[:, 0]  # not before a first action
        count, total, plan = count.clone(), total.clone(), plan.clone()
        count[acted, obs[acted], last[acted], step.final_obs[acted]] += 1
        total[acted, obs[acted], last[acted]] += step.reward[acted]
        begun = (step.timestep == 0).nonzero()[:, 0]
        plan[begun] = self._planned(count[begun], total[begun], seeds_of(noise[begun]))
        action = plan[torch.arange(len(noise), device=noise.device), step.timestep, step.obs]
        return action, Counts(count, total, plan, step.obs, action)

    def replace_action(self, carry: Counts, action: Tensor) -> Counts:
        """The next transition is credited to the `action` `[B]` that was done."""
        return carry._replace(last=action)

    def _planned(self, count: Tensor, total: Tensor, seeds: Tensor) -> Tensor:
        """Best actions `[B, M, S]` in MDPs drawn from the posterior, by backward induction."""
        numbers = torch.arange(count.shape[1:].numel(), device=count.device).view(count.shape[1:])
        drawn = dirichlet(1 + count, mix(seeds.view(-1, 1, 1, 1), numbers))
        weight = 1 + count.sum(dim=-1)
        mean = (PRIOR_MEAN + total) / weight
        further = normal(uniform(mix(seeds, -1).view(-1, 1, 1), numbers[..., 0]))
        reward = mean + (further.clamp(min=0) if self._optimistic else further) / weight.sqrt()
        value, actions = torch.zeros_like(reward[..., 0]), list[Tensor]()
        for _ in range(self._sizes[2]):
            value, action = (reward + (drawn @ value[:, None, :, None])[..., 0]).max(dim=-1)
            actions.append(action)
        return torch.stack(actions[::-1], dim=1)


@searchers_in.register
def _(env: DirichletMDP) -> dict[str, Any]:
    sampling = {"PSRL": GaussianPSRL(env, optimistic=False), "OPSRL": GaussianPSRL(env, optimistic=True)}
    return sampling | {"random": Chance(env.spec), env.best_name: Planner()}
