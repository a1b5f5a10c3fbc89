"""Offline reinforcement learning of values in context: ILQL (Snell et al., 2022, arXiv 2206.11871), IQL (Kostrikov et
al., 2021) and conservative Q-learning (Kumar et al., 2020) on windows of histories.

B windows, T steps, A actions. Networks Q1, Q2, V and, with a bar, their target networks. At step t of a window,
conditioned on the earlier steps of the window:

    q_t = min(Q1bar(o_t, a_t), Q2bar(o_t, a_t))
    v_t = Vbar(o_t)  (backup=expectile)   or   max over a of min(Q1bar, Q2bar)(o_t, a)  (backup=max)
    y_t = r_t + gamma_t ((1 - lambda) v_{t+1} + lambda y_{t+1})
    q1 = mean (y_t - Q1(o_t, a_t))^2,  q2 likewise
    value = mean |tau - 1[q_t < V(o_t)]| (q_t - V(o_t))^2
    conservative = mean over both of logsumexp over a of Q(o_t, a) - Q(o_t, a_t)

gamma_t is the discount factor, or 0 where the return ends. lambda is 0 in one-step TD, and where y_{t+1} is unknown or
belongs to another return. Sums over actions are over legal actions.

v_{t+1} is the value of the next observation of the same stream. With horizon=across_episodes this is the next
observation in the window, even if it starts another episode. With horizon=episode, v_{t+1} is 0 after a termination;
after a truncation, the final observation replaces the first one of the next episode. This takes a second forward pass,
which can include one truncation per window: one is drawn at random and has the weight of all truncations of its window.
The final observation gets the last time step, because no action is chosen at its own. The last step of a window has no
next observation and weight 0 in all terms: to use it only after a termination would select steps by their outcome,
and V must not learn what Q says at a position where Q has no target.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.contracts import Batch
from icrl.extensions.offline_rl.critic import NUM_CRITICS, Critic, CriticConfig, Values
from icrl.nn.gpt import Window, context_of
from icrl.runs.processes import say


class ImplicitQLearning:
    """Objective with the equations above."""

    lowered = "critic.discount_factor, "

    def __init__(self, critic: Critic, bound: float = math.inf) -> None:
        """Train `critic` with targets from its target network. `bound`: see `value_bound`."""
        self.config, self.spec, self.target = critic.config, critic.online.spec, critic.target
        self.bound = bound or math.inf  # 0: all rewards are 0
        self._has_warned = False
        weights = {
            "q1": 1.0,
            "q2": 1.0,
            "value": critic.config.v_loss_scaling,
            "conservative": critic.config.conservative_scaling,
        }
        self.weights = {name: weight for name, weight in weights.items() if weight}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss terms named in `weights`. Metrics: the mean Q of the actions taken (`q`) and mean V (`v`), the share of
        steps with a target of V above V (`above_value`), the largest |Q|, also divided by the bound (`q_over_bound`:
        above 1 it diverges), and the mean absolute temporal difference (`td_error`)."""
        values: Values = model(context_of(Window.of(batch)))
        target, backup, counts = self.targets(batch)
        taken = values.q.gather(-1, batch.action.expand(NUM_CRITICS, -1, -1)[..., None])[..., 0]  # [2, B, T]
        errors = backup - taken
        usable = counts.sum().clamp(min=1)
        terms = dict(zip(("q1", "q2"), (errors.square() * counts).sum((1, 2)) / usable, strict=True))
        above = target - values.value
        if "value" in self.weights:
            terms["value"] = ((self.config.expectile - (above < 0).float()).abs() * above.square())[:, :-1].mean()
        if "conservative" in self.weights:
            terms["conservative"] = (self.spec.legal_of(values.q, batch.obs).logsumexp(-1) - taken)[..., :-1].mean()
        largest = self.spec.legal_of(values.q, batch.obs, 0.0).abs().max()
        metrics = {
            "q": taken.mean(),
            "v": values.value.mean(),
            "above_value": (above > 0).float().mean(),
            "largest_q": largest,
            "q_over_bound": largest / self.bound,
            "td_error": (errors.abs() * counts).sum() / (2 * usable),
        }
        return terms, {name: metric.detach() for name, metric in metrics.items()}

    def warn(self, update: int, metrics: Mapping[str, float]) -> None:
        """Tell the user, once, if the critic may diverge."""
        share = metrics.get("q_over_bound", 0.0)
        if self._has_warned or share <= 1:
            return
        self._has_warned = True
        say(
            f"update {update}: the largest |Q| is {share:.3g} times the largest return (train/q_over_bound). If it "
            "stays above 1 the critic diverges: under another name=, a lower optimizer.learning_rate or "
            "critic.target_update_rate may help"
        )

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Targets of V and of Q from the target network, which is in eval mode, and the weight of each step in the loss
        of Q: 0 if its target is unknown. `[B, T]` each."""
        seen: Values = self.target(context_of(Window.of(batch)))
        q = seen.least_q.gather(-1, batch.action[..., None])[..., 0]
        following = F.pad(seen.value[:, 1:], (0, 1))  # [B, T]
        counts = torch.ones_like(following)
        counts[:, -1] = 0
        terminated, truncated = batch.terminated.bool(), (batch.truncated & ~batch.terminated).bool()
        discount = torch.full_like(following, self.config.discount_factor)
        if self.config.horizon == "episode":
            discount[terminated] = 0
            truncated[:, -1] = False
            luck = torch.rand(truncated.shape, device=truncated.device).masked_fill(~truncated, -1)
            drawn = truncated & F.one_hot(luck.argmax(1), luck.shape[1]).bool()  # one in each row that has any
            counts = torch.where(truncated, drawn * truncated.sum(1, keepdim=True), counts)
            following = torch.where(drawn, F.pad(self._values_with_final(batch, drawn)[:, 1:], (0, 1)), following)
        else:
            truncated.zero_()  # the next episode follows
        returns = batch.training_reward + discount * following
        if self.config.return_lambda:
            traced = self.config.return_lambda * (counts[:, 1:] > 0) * ~truncated[:, :-1]
            for t in reversed(range(traced.shape[1])):
                returns[:, t] += discount[:, t] * traced[:, t] * (returns[:, t + 1] - following[:, t])
        return q, returns, counts

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Minimum of Q1 and Q2 for every action, `[B, T, A]`: -inf for illegal actions."""
        return self.spec.legal_of(model(context_of(Window.of(batch))).least_q, batch.obs)

    def _values_with_final(self, batch: Batch, drawn: Tensor) -> Tensor:
        """V `[B, T]` of the windows with the final observation after each step in `drawn` `[B, T]`."""
        context, after = context_of(Window.of(batch)), F.pad(drawn[:, :-1], (1, 0))
        obs, timestep = (column.roll(1, dims=1) for column in (batch.next_obs, batch.timestep + 1))
        shown = context._replace(
            obs=torch.where(after.view(*after.shape, *[1] * (obs.ndim - 2)), obs, context.obs),
            timestep=torch.where(after, timestep.clamp(max=self.spec.max_episode_steps - 1), context.timestep),
        )
        return self.target(shown).value


def value_bound(config: CriticConfig, largest_reward: float) -> float:
    """Largest absolute return: r / (1 - gamma). Values continue after a truncation, so gamma = 1 gives infinity, unless
    every reward is 0."""
    if not largest_reward:
        return 0.0
    gamma = config.discount_factor
    return largest_reward / (1 - gamma) if gamma < 1 else math.inf
