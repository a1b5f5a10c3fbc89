"""Heads: the distribution of an action, given the parameters that a linear layer computes from the hidden state.

Leading axes are any positions, P parameters, k numbers of noise. Discrete actions have a categorical, whose first
parameters are logits; extensions have others. A temperature divides logits; a density is raised to 1 / temperature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from icrl.config.modules import BySpec
from icrl.config.options import refuse
from icrl.nn.encoders import Table
from icrl.nn.networks import in_float32
from icrl.randomness import draw_possible
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

head_for = BySpec("action head")  # of classes that are made with the options of the model and a spec
HEADS: dict[str, Any] = dict.fromkeys(("auto", "gaussian", "binned"))  # by `model.head`; None: by the spec


class Head(nn.Module):
    """Distribution of actions `[..., *action_shape]`, given `num_parameters` numbers `[..., P]`. `num_noise` (k)
    uniform numbers make a sample. All results are in float32 at least."""

    num_parameters: int
    num_noise: int
    model: Any = None  # class of the whole model, in place of `nn.gpt.GPT`

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Log-probability of each action, or its log-density in a Box, `[...]`."""
        raise NotImplementedError

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy in nats, `[...]`; in a Box the differential entropy."""
        raise NotImplementedError

    def mode(self, parameters: Tensor) -> Tensor:
        """Most probable actions, `[..., *action_shape]`."""
        raise NotImplementedError

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        """Actions `[B, *action_shape]` for `[B, P]`, given uniform `noise` `[B, k]` in [0, 1)."""
        raise NotImplementedError

    def encoder(self, width: int) -> nn.Module:
        """Encoder of previous actions `[B, T, *action_shape]`, given where there is none: `[B, T, D]`."""
        raise NotImplementedError


class Categorical(Head):
    """A categorical over actions that are single numbers, `[...]`."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.num_parameters, self.num_noise = num_actions, 1

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return in_float32(parameters).log_softmax(-1).gather(-1, action[..., None])[..., 0]

    def entropy(self, parameters: Tensor) -> Tensor:
        log = in_float32(parameters).log_softmax(-1)  # a logit of -inf is allowed
        return -(log.exp() * log.clamp(min=torch.finfo(log.dtype).min)).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        return draw_possible((in_float32(parameters) / temperature).softmax(-1), noise[:, 0])

    def encoder(self, width: int) -> nn.Module:
        return Table(self.num_parameters, width)


def make_head(config: GPTConfig, spec: EnvSpec) -> Head:
    """Head of the actions of a world. Raises `ConfigError` if there is none, or if `model.head` does not fit them."""
    space = spec.action_space
    if own := HEADS[config.head]:
        return own(config, spec)
    if not isinstance(space, Discrete):
        return head_for.of(spec)(config, spec)
    refuse(config.head != "auto", f"model.head={config.head} is for actions in a Box, not in {space}: must be auto")
    return Categorical(int(space.n))
