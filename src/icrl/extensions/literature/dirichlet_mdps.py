"""Random MDPs with gaussian rewards (Duan et al., 2016, arXiv 1611.02779, section 3.2), and posterior sampling in them.

N tasks, B streams, S states, A actions, M steps an episode.
"""

from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Step
from icrl.envs.core import NAME, Outcomes, State, world
from icrl.envs.policies import Chance, Planner
from icrl.evaluation.references import searchers_in
from icrl.extensions.exact.tables import best_actions
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
        self._plan_steps = config.max_episode_steps

    @cached_property
    def _best(self) -> Tensor:
        after = torch.arange(self.num_states, device=self.means.device).expand_as(self._probability)
        mean = torch.arange(self.means.numel(), device=self.means.device).view_as(self.means)[..., None]
        mean = mean.expand_as(self._probability)
        rules = Outcomes(self._probability, after, mean, torch.zeros_like(mean, dtype=torch.bool))
        return best_actions(rules, self.means.flatten(), self._plan_steps)

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


class Planning:
    """Policy that plans at the start of each episode in the MDP that its counts make likely, and follows the plan."""

    def __init__(self, env: DirichletMDP) -> None:
        self._sizes = env.num_states, env.spec.num_actions, env.spec.max_episode_steps

    def likely(self, count: Tensor, total: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Transitions `[B, S, A, S]` and mean rewards `[B, S, A]` to plan in, from the `count` of transitions and the
        `total` of rewards, and the distance `[B, S, A]` within which transitions are as good as can be (None: 0)."""
        raise NotImplementedError

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
        """Best actions `[B, M, S]` in what is likely, by backward induction."""
        probability, reward, radius = self.likely(count, total, seeds)
        value, actions = torch.zeros_like(reward[..., 0]), list[Tensor]()
        for _ in range(self._sizes[2]):
            if radius is None:
                after = (probability @ value[:, None, :, None])[..., 0]
            else:
                after = hoped(probability, radius, value)
            value, action = (reward + after).max(dim=-1)
            actions.append(action)
        return torch.stack(actions[::-1], dim=1)


class GaussianPSRL(Planning):
    """PSRL (Osband, Russo and Van Roy, 2013, arXiv 1306.0940) with the world's own prior: at the start of each episode
    it draws an MDP from its posterior.

        p(. | s, a) ~ Dirichlet(1 + n(s, a, .)),    m(s, a) ~ N((1 + r) / (1 + n), 1 / (1 + n))

    after n pulls of a in s with rewards r in all. Optimistic (OPSRL), no drawn mean reward is below that of the
    posterior (after May et al., 2012, "Optimistic Bayesian sampling in contextual-bandit problems")."""

    def __init__(self, env: DirichletMDP, optimistic: bool) -> None:
        super().__init__(env)
        self._optimistic = optimistic

    def likely(self, count: Tensor, total: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, None]:
        numbers = torch.arange(count.shape[1:].numel(), device=count.device).view(count.shape[1:])
        drawn = dirichlet(1 + count, mix(seeds.view(-1, 1, 1, 1), numbers))
        weight = 1 + count.sum(dim=-1)
        mean = (PRIOR_MEAN + total) / weight
        further = normal(uniform(mix(seeds, -1).view(-1, 1, 1), numbers[..., 0]))
        return drawn, mean + (further.clamp(min=0) if self._optimistic else further) / weight.sqrt(), None


class Greedy(Planning):
    """Planning in the mean of the posterior: it learns from what it meets, and never explores on purpose."""

    def likely(self, count: Tensor, total: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, None]:
        weight = 1 + count.sum(dim=-1)
        return (1 + count) / (1 + count).sum(dim=-1, keepdim=True), (PRIOR_MEAN + total) / weight, None


class UCRL2(Planning):
    """UCRL2 (Jaksch, Ortner and Auer, 2010, "Near-optimal regret bounds for reinforcement learning"), with a plan for
    each episode: it plans in the best MDP within bounds around the means of what it met, in t steps so far,

        |m(s, a) - mean| <= c sqrt(2 ln(2 S A t) / n),    |p(. | s, a) - mean|_1 <= c sqrt(14 S ln(2 A t) / n)

    where c = 0.1 in place of 1, which was chosen on other tasks. Without a pull n is 1, the mean reward that of the
    prior, and all states are as likely."""

    width = 0.1

    def likely(self, count: Tensor, total: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        num_states, num_actions, _ = self._sizes
        pulls = count.sum(dim=-1)
        time, number = pulls.sum(dim=(1, 2), keepdim=True).clamp(min=1), pulls.clamp(min=1)
        mean = torch.where(pulls > 0, total / number, PRIOR_MEAN)
        probability = torch.where(pulls[..., None] > 0, count / number[..., None], 1 / num_states)
        further = (2 * (2 * num_states * num_actions * time).log() / number).sqrt()
        radius = (14 * num_states * (2 * num_actions * time).log() / number).sqrt()
        return probability, mean + self.width * further, self.width * radius


def hoped(probability: Tensor, radius: Tensor, value: Tensor) -> Tensor:
    """Largest mean `[B, S, A]` of the `value` `[B, S]` of the next state, for transitions within an L1 distance
    `radius` of `probability`: half of it is added to the best state and taken from the worst ones (Jaksch et al.,
    2010, figure 2)."""
    order = value.argsort(dim=-1, descending=True)
    ranked = probability.gather(-1, order[:, None, None].expand_as(probability))
    added = torch.minimum(radius / 2, 1 - ranked[..., 0])
    worse = ranked.flip(-1).cumsum(-1).flip(-1) - ranked  # probability of all states that are worse
    taken = (added[..., None] - worse).clamp(min=0).minimum(ranked)
    taken[..., 0] = -added
    return ((ranked - taken) * value.gather(-1, order)[:, None, None]).sum(-1)


@searchers_in.register
def _(env: DirichletMDP) -> dict[str, Any]:
    sampling = {"PSRL": GaussianPSRL(env, optimistic=False), "OPSRL": GaussianPSRL(env, optimistic=True)}
    others = {"UCRL2": UCRL2(env), "greedy planning": Greedy(env)}
    return sampling | others | {"random": Chance(env.spec), env.best_name: Planner()}
