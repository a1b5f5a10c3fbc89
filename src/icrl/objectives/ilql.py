"""Offline reinforcement learning of values in context: ILQL (Snell et al., 2022, arXiv 2206.11871), IQL (Kostrikov et
al., 2021) and conservative Q-learning (Kumar et al., 2020) on windows of histories.

B windows, T steps, A actions. Networks Q1, Q2, V and, with a bar, their target networks. At step t of a window,
conditioned on the earlier steps of the window:

    q_t = min(Q1bar(o_t, a_t), Q2bar(o_t, a_t))
    v_t = Vbar(o_t)  (backup=expectile)   or   max over a of min(Q1bar, Q2bar)(o_t, a)  (backup=max)
    y_t = scale * r_t + gamma_t ((1 - lambda) v_{t+1} + lambda y_{t+1})
    q1 = mean (y_t - Q1(o_t, a_t))^2,  q2 likewise
    value = mean |tau - 1[q_t < V(o_t)]| (q_t - V(o_t))^2
    conservative = mean over both of logsumexp over a of Q(o_t, a) - Q(o_t, a_t)
    imitation = - mean log pi(a_t | o_t)

gamma_t is the discount factor, or 1 within an episode if it counts episodes. lambda is 0 in one-step TD, and where
y_{t+1} is unknown or belongs to another return. Sums over actions, and pi, are over legal actions. Losses are in
float32, and the bootstrap carries no gradient.

v_{t+1} is the value of the next observation of the same stream. With horizon=across_episodes this is the next
observation in the window, even if it starts another episode. With horizon=episode, v_{t+1} is 0 after a termination.
After a truncation, the final observation replaces the first one of the next episode. This takes a second forward pass,
which can include one truncation per window: one is drawn at random and has the weight of all truncations of its window.
The final observation gets the last time step, because no action is chosen at its own. The last step of a window has no
next observation and weight 0: to use it only after a termination would select steps by their outcome.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.contracts import Batch
from icrl.nn.critic import NUM_CRITICS, Critic, CriticConfig, Values
from icrl.nn.gpt import Context
from icrl.objectives.ad import batch_context


class Targets(NamedTuple):
    """Regression targets, `[B, T]` each."""

    q: Tensor  # for V
    backup: Tensor  # for Q
    counts: Tensor  # weight of a step in the loss of Q: 0 if its backup is unknown


class ImplicitQLearning:
    """Objective with the equations above."""

    def __init__(self, critic: Critic, bound: float = math.inf) -> None:
        """Train `critic` with targets from its target network. `bound`: see `value_bound`."""
        config = critic.config
        self.config, self.spec, self.target = config, critic.online.spec, critic.target
        self.bound = bound or math.inf  # 0: all rewards are 0
        self.weights = {"q1": config.q_loss_scaling, "q2": config.q_loss_scaling}
        if config.backup == "expectile":
            self.weights["value"] = config.v_loss_scaling
        further = {"conservative": config.conservative_scaling, "imitation": config.imitation_scaling}
        self.weights |= {name: scaling for name, scaling in further.items() if scaling}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss terms named in `weights`. Metrics: the mean Q of the actions taken (`q`) and mean V (`v`), the share of
        steps with a target of V above V (`above_value`), the largest |Q|, also divided by the bound (`q_over_bound`:
        above 1 it diverges), and the mean absolute temporal difference (`td_error`)."""
        values: Values = model(batch_context(self.spec, batch))
        targets = self.targets(batch)
        taken = values.q.gather(-1, batch.action.expand(NUM_CRITICS, -1, -1)[..., None])[..., 0]  # [2, B, T]
        errors = targets.backup - taken
        usable = targets.counts.sum().clamp(min=1)
        q1, q2 = (errors.square() * targets.counts).sum((1, 2)) / usable
        terms = {"q1": q1, "q2": q2}
        above = targets.q - values.value
        if "value" in self.weights:
            terms["value"] = expectile_loss(above, self.config.expectile).mean()
        if "conservative" in self.weights:
            terms["conservative"] = (self.spec.legal_of(values.q, batch.obs).logsumexp(-1) - taken).mean()
        if values.logits is not None:
            logits = self.spec.legal_of(values.logits, batch.obs)
            terms["imitation"] = F.cross_entropy(logits.flatten(0, 1), batch.action.flatten())
        largest = self.spec.legal_of(values.q, batch.obs, 0.0).abs().max()
        metrics = {
            "q": taken.mean(),
            "v": values.value.mean(),
            "above_value": (above > 0).float().mean(),
            "largest_q": largest,
            "q_over_bound": largest / self.bound,
            "td_error": (errors.abs() * targets.counts).sum() / (2 * usable),
        }
        return terms, {name: metric.detach() for name, metric in metrics.items()}

    @torch.no_grad()
    def targets(self, batch: Batch) -> Targets:
        """Regression targets from the target network, which is in eval mode."""
        context = batch_context(self.spec, batch)
        seen: Values = self.target(context)
        q = seen.least_q.gather(-1, batch.action[..., None])[..., 0]
        following = F.pad(seen.value[:, 1:], (0, 1))  # [B, T]
        counts = torch.ones_like(following)
        counts[:, -1] = 0
        terminated, truncated = batch.terminated.bool(), (batch.truncated & ~batch.terminated).bool()
        discount = torch.full_like(following, self.config.discount_factor)
        if self.config.discount_per == "episode":
            discount[~(terminated | truncated)] = 1
        if self.config.horizon == "episode":
            discount[terminated] = 0
            truncated[:, -1] = False
            shown = _one_of(truncated)
            counts = torch.where(truncated, shown * truncated.sum(1, keepdim=True), counts)
            at_end = self.target(self._with_final(context, batch, shown)).value
            following = torch.where(shown, F.pad(at_end[:, 1:], (0, 1)), following)
        else:
            truncated.zero_()  # the next episode follows
        reward = self.config.reward_scale * batch.training_reward
        traced = self.config.return_lambda * (counts[:, 1:] > 0) * ~truncated[:, :-1]
        if self.config.return_lambda:
            return Targets(q, lambda_returns(reward, discount, following, traced), counts)
        return Targets(q, reward + discount * following, counts)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Minimum of Q1 and Q2 for every action, `[B, T, A]`: -inf for illegal actions."""
        return self.spec.legal_of(model(batch_context(self.spec, batch)).least_q, batch.obs)

    def _with_final(self, context: Context, batch: Batch, shown: Tensor) -> Context:
        """Context with the final observation after each step in `shown` `[B, T]`."""
        after = F.pad(shown[:, :-1], (1, 0))
        last = self.spec.max_episode_steps - 1
        obs, timestep = (column.roll(1, dims=1) for column in (batch.next_obs, batch.timestep))
        return context._replace(
            obs=torch.where(after.view(*after.shape, *[1] * (obs.ndim - 2)), obs, context.obs),
            timestep=torch.where(after, (timestep + 1).clamp(max=last), context.timestep),
        )


def lambda_returns(reward: Tensor, discount: Tensor, following: Tensor, traced: Tensor) -> Tensor:
    """Lambda returns y_t = r_t + gamma_t ((1 - l_t) v_{t+1} + l_t y_{t+1}) from rewards, discounts and next values `[B,
    T]`, and the lambdas `traced` `[B, T - 1]`."""
    returns = reward + discount * following
    for t in reversed(range(traced.shape[1])):
        returns[:, t] += discount[:, t] * traced[:, t] * (returns[:, t + 1] - following[:, t])
    return returns


def expectile_loss(above: Tensor, expectile: float) -> Tensor:
    """Expectile loss |expectile - 1[above < 0]| above^2, elementwise, with `above` = target - estimate."""
    return (expectile - (above < 0).float()).abs() * above.square()


def _one_of(mask: Tensor) -> Tensor:
    """Random choice of one true entry in each row of `mask` `[B, T]` that has any, with torch's global generator."""
    luck = torch.rand(mask.shape, device=mask.device).masked_fill(~mask, -1)
    return mask & F.one_hot(luck.argmax(1), mask.shape[1]).bool()


def value_bound(config: CriticConfig, largest_reward: float, max_episode_steps: int) -> float:
    """Largest absolute return: r / (1 - gamma), times the steps of an episode if gamma counts episodes. Values continue
    after a truncation, so gamma = 1 gives infinity, unless every reward is 0."""
    if not largest_reward:
        return 0.0
    reward, gamma = config.reward_scale * largest_reward, config.discount_factor
    forever = reward / (1 - gamma) if gamma < 1 else math.inf
    return max_episode_steps * forever if config.discount_per == "episode" else forever
