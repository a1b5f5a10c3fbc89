"""In-context TD3+BC (Fujimoto and Gu, 2021, arXiv 2106.06860; in context: Tarasov et al., 2025, arXiv 2502.17666).

A trunk reads a window; h_t is its output at step t, after the observation o_t. On it are an actor pi and critics Q1 and
Q2. Slow copies have a bar. Actions are in units of half the distance between their bounds, rewards in units of the
deviation s of all rewards of the histories:

    e_t    = clip(0.2 N(0, 1), -0.5, 0.5)
    y_t    = r_t / s + discount * min_i Qbar_i(hbar_{t+1}, clip(pibar(hbar_{t+1}) + e_t, -1, 1))
    critic = mean over both and t of (y_t - Q_i(h_t, a_t))^2
    actor  = mean (pi(h_t) - a_t)^2 - q_weight * mean Q1(h_t, pi(h_t)) / mean |Q1(h_t, a_t)|

y_t has no second term after a termination. The last step of a window, and the last one of a truncated episode, have no
known next h and no part in `critic`. Q1 in `actor` has a gradient with respect to the actor's action alone.

B windows, T steps, k numbers of an action.
"""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from gymnasium.spaces import Box
from torch import Tensor, nn

from icrl.config.options import option, refuse
from icrl.contracts import Batch
from icrl.extensions.td3_bc.networks import ActorAndCritics, Judged
from icrl.nn.gpt import Window, context_of
from icrl.objectives import objective
from icrl.objectives.imitation import ObjectiveConfig
from icrl.spaces import EnvSpec

NOISE, MOST_NOISE = 0.2, 0.5


class TD3BCConfig(ObjectiveConfig):
    program: ClassVar[str] = "train_td3_bc"
    name: Literal["td3_bc"] = option("td3_bc", "in-context TD3+BC for continuous actions, of train_td3_bc")
    q_weight: float = option(2.5, "weight of the normalized Q in the actor's loss (0: plain cloning)", ge=0)


@objective("td3_bc", TD3BCConfig)
class TD3BC:
    """Objective with the equations above."""

    lowered = "objective.q_weight, "

    def __init__(self, config: Any, spec: EnvSpec, networks: Any = None, reward_std: Any = 1.0) -> None:
        """Objective of `networks`, with targets from their slow copies. Raises `ConfigError` in a world without
        continuous actions, and for other networks."""
        space, name = spec.action_space, "objective.name=td3_bc"
        refuse(not isinstance(space, Box), f"{name} needs continuous actions in a Box, not {space}")
        other = networks is not None and not isinstance(networks, ActorAndCritics)
        refuse(other, f"{name} is learned by `python -m src.train_td3_bc`, not by train_gpt")
        self.config, self.networks, self.reward_std = config, networks, reward_std or 1.0
        self.weights = {"critic": 1.0, "actor": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss terms named in `weights`. Metrics: the mean Q of the actions taken (`q`) and of the actor's
        (`q_chosen`), the mean absolute temporal difference (`td_error`), and the mean absolute difference of the
        actor's actions and those taken (`action_error`)."""
        action = self.networks.online.actor.head.in_units(batch.action)
        judged: Judged = model(context_of(Window.of(batch)), action)
        target, known = self.targets(batch)
        errors, away = (target - judged.q) * known, judged.chosen - action
        usable = known.sum().clamp(min=1)
        size = judged.q[0].detach().abs().mean().clamp(min=1e-6)
        terms = {
            "critic": errors.square().sum() / (len(judged.q) * usable),
            "actor": away.square().mean() - self.config.q_weight * judged.q_chosen.mean() / size,
        }
        metrics = {
            "q": judged.q.mean(),
            "q_chosen": judged.q_chosen.mean(),
            "td_error": errors.abs().sum() / (len(judged.q) * usable),
            "action_error": away.abs().mean(),
        }
        return terms, {name: metric.detach() for name, metric in metrics.items()}

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Targets of Q, and 1 where they are known, else 0: `[B, T]` each."""
        slow = self.networks.target
        hidden = slow.hidden(context_of(Window.of(batch)))
        chosen = slow.actor.chosen(hidden)
        noise = (NOISE * torch.randn_like(chosen)).clamp(-MOST_NOISE, MOST_NOISE)
        least = slow.q(hidden, (chosen + noise).clamp(-1, 1)).amin(0)
        ahead = F.pad(least[:, 1:], (0, 1)).masked_fill(batch.terminated.bool(), 0.0)
        known = (batch.terminated | (1 - batch.truncated)).float()
        known[:, -1] = 0  # after a termination too: to use it only then would select steps by their outcome
        return batch.training_reward / self.reward_std + self.config.discount * ahead, known

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Parameters of the actor's head, `[B, T, P]`."""
        return self.networks.online.actor(context_of(Window.of(batch)))
