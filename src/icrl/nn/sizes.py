"""How many parameters networks have, without making them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from icrl.config.offline_schema import CriticConfig, DecoderConfig
from icrl.contracts import EnvSpec
from icrl.nn.cross import NUM_STREAMS
from icrl.nn.layers import Layer

if TYPE_CHECKING:
    from icrl.config.root import ModelConfig


def trunk_parameters(model: ModelConfig, spec: EnvSpec) -> int:
    """Those of `gpt.Trunk`."""
    width, forms = model.embed_dim, NUM_STREAMS if model.tokens == "cross" else 1
    feeding = _linear(width, model.ff_dim) + _linear(model.ff_dim, width)
    block = 4 * width + forms * (_linear(width, 3 * width) + _linear(width, width) + feeding)
    last = block - (forms - 1) * (_linear(width, width) + feeding)  # it makes one stream alone
    tables = spec.num_actions + 1 + spec.num_rewards + 1
    tables += spec.max_episode_steps * model.add_env_time + model.context_len * (model.position == "learned")
    embeddings = _observation(model, spec) * (2 if model.tokens == "transition" else 1) + tables * width
    total = embeddings + (model.num_layers - 1) * block + last + 2 * width
    if model.induction:  # two norms, three layers, "no visit" and the preference for new visits
        total += 4 * width + 2 * _linear(width, width) + _linear(width, 2 * width) + 2 * width + model.num_heads
    return total


def gpt_parameters(model: ModelConfig, spec: EnvSpec) -> int:
    """Those of `gpt.GPT`."""
    return trunk_parameters(model, spec) + _linear(model.embed_dim, spec.num_actions)


def values_parameters(trunk: ModelConfig, decoder: DecoderConfig, critic: CriticConfig, spec: EnvSpec) -> int:
    """Those of `critic.ValueNetwork`, of which a critic has two; `trunk` is the form of its trunk."""

    def head(outputs: int) -> int:
        hidden = [decoder.ff_dim] * (min(decoder.num_layers, 3) - 1)
        widths = [trunk.embed_dim, *hidden, outputs]
        further = max(0, decoder.num_layers - 3) * _linear(decoder.ff_dim, decoder.ff_dim)
        return sum(_linear(*pair) for pair in pairwise(widths)) + further

    trunks = (1 + critic.separate_value) * trunk_parameters(trunk, spec)
    values = 2 * head(spec.num_actions) + (head(1) if critic.backup == "expectile" else 0)
    policy = _linear(trunk.embed_dim, spec.num_actions) if critic.imitation_scaling else 0
    return trunks + values + policy


def learner_parameters(spec: EnvSpec, num_outputs: int, hidden_size: int) -> int:
    """Those of one learner in a `stacked` network."""
    if spec.obs_shape:
        of_set = _linear(2 * hidden_size + spec.points[1] + spec.num_actions, hidden_size)
        return _linear(2 * spec.points[1], hidden_size) + of_set + _linear(hidden_size, num_outputs)
    return spec.num_obs * hidden_size + _linear(hidden_size, num_outputs)


def net_parameters(num_inputs: int, num_outputs: int, layers: Sequence[Layer]) -> int:
    """Those of `net_arch.make_network`."""
    total, width = 0, num_inputs
    for layer in layers:
        norm = 0 if layer.normalization == "none" else 2 * layer.width
        total += _linear(width, layer.width) + norm
        if layer.residual:
            shortcut = _linear(width, layer.width) if width != layer.width else 0
            total += _linear(layer.width, layer.width) + norm + shortcut
        width = layer.width
    return total + _linear(width, num_outputs)


def _linear(num_inputs: int, num_outputs: int) -> int:
    return (num_inputs + 1) * num_outputs


def _observation(model: ModelConfig, spec: EnvSpec) -> int:
    """Those of `gpt.ObsEmbedding` or `gpt.PointEmbedding`."""
    width = model.embed_dim
    if spec.points[0]:
        of_set = _linear(2 * width + spec.points[1] + spec.num_actions, width)
        return _linear(2 * spec.points[1], width) + of_set
    if model.obs_encoding == "cell" or not spec.width:
        return spec.num_obs * width
    layers = spec.num_obs // spec.width**2
    return (2 * model.max_size + (layers if layers > 1 else 0)) * width
