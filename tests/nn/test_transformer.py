"""Transformers of one token or three streams per step, against attention in loops and against themselves cached."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.nn.transformer import KVCache, StreamLinear, Transformer

CONFIG = replace(load_config().model, embed_dim=8, num_heads=2, num_layers=2, ff_dim=16)
HEAD_DIM = 4
every_form = pytest.mark.parametrize("tokens", ["transition", "cross"])
every_position = pytest.mark.parametrize("position", ["none", "rope"])


def transformer_of(tokens: str, position: str = "none", **changes: Any) -> Transformer:
    config = replace(CONFIG, tokens=tokens, position=position, **changes)
    return outspoken(Transformer(config), 0.4).eval()


def size_of(tokens: str) -> int:
    return 3 if tokens == "cross" else 1


def tokens_of(num_streams: int, length: int, seed: int = 0) -> Tensor:
    return torch.randn(num_streams, length, CONFIG.embed_dim, generator=torch.Generator().manual_seed(seed))


def own(linear: nn.Module, stream: int) -> nn.Module:
    return linear.streams[stream] if isinstance(linear, StreamLinear) else linear


def turned(vector: Tensor, position: int) -> Tensor:
    """Rotary code as complex numbers: channels i and i + half are one number, multiplied by exp(i * angle)."""
    half = len(vector) // 2
    numbers = [
        complex(vector[i], vector[i + half]) * complex(math.cos(angle), math.sin(angle))
        for i, angle in ((i, position * 10000 ** (-i / half)) for i in range(half))
    ]
    return torch.tensor([number.real for number in numbers] + [number.imag for number in numbers])


def attended(attention: nn.Module, x: Tensor, t: int, stream: int, *, rotary: bool) -> Tensor:
    """Attention of one stream at step t over all streams' steps up to t, of normed tokens `[T, G, D]`."""
    heads = []
    for head in range(CONFIG.num_heads):
        part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        query = own(attention.qkv, stream)(x[t, stream]).split(CONFIG.embed_dim)[0][part]
        scores, values = [], []
        for u in range(t + 1):
            for other in range(x.shape[1]):
                _, key, value = own(attention.qkv, other)(x[u, other]).split(CONFIG.embed_dim)
                pair = (turned(query, t), turned(key[part], u)) if rotary else (query, key[part])
                scores.append(pair[0] @ pair[1] / math.sqrt(HEAD_DIM))
                values.append(value[part])
        heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
    return own(attention.out, stream)(torch.cat(heads))


def activation(name: str, value: float) -> float:
    return max(0.0, value) if name == "relu" else value * (1 + math.erf(value / math.sqrt(2))) / 2


def in_loops(transformer: Transformer, x: Tensor) -> Tensor:
    """The last stream `[T, D]` of tokens `[T, G, D]`, block by block, step by step, stream by stream."""
    for block in transformer.blocks:
        normed, after = block.attention_norm(x), torch.empty_like(x)
        for t in range(len(x)):
            for stream in range(x.shape[1]):
                rotary = transformer.config.position == "rope"
                y = x[t, stream] + attended(block.attention, normed, t, stream, rotary=rotary)
                wide = own(block.widen, stream)(block.feed_forward_norm(y)).tolist()
                active = torch.tensor([activation(transformer.config.activation, value) for value in wide])
                after[t, stream] = y + own(block.narrow, stream)(active)
        x = after
    return transformer.norm(x[:, -1])


@every_form
@every_position
@pytest.mark.parametrize("function", ["relu", "gelu"])
@torch.no_grad()
def test_a_transformer_equals_loops(tokens: str, position: str, function: str) -> None:
    transformer, size = transformer_of(tokens, position, activation=function), size_of(tokens)
    x = tokens_of(2, 4 * size)
    got = transformer(x)
    for stream in range(2):
        expected = in_loops(transformer, x[stream].unflatten(0, (4, size)))
        assert torch.allclose(got[stream], expected, atol=1e-4)


@every_form
@every_position
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5))
@torch.no_grad()
def test_chunks_through_the_cache_equal_one_forward(tokens: str, position: str, lengths: list[int]) -> None:
    """In an empty cache, and in one whose length was set back to 0."""
    transformer, size = transformer_of(tokens, position), size_of(tokens)
    x = tokens_of(2, size * sum(lengths))
    cache = KVCache(*torch.zeros(2, CONFIG.num_layers, 2, CONFIG.num_heads, 75, HEAD_DIM))
    for _ in range(2):
        cache.length = 0
        chunks = [transformer(chunk, cache) for chunk in x.split([size * length for length in lengths], dim=1)]
        assert torch.allclose(torch.cat(chunks, dim=1), transformer(x), atol=1e-5)
        assert cache.length == size * sum(lengths)


@every_form
def test_every_parameter_learns_and_the_last_block_updates_one_stream(tokens: str) -> None:
    transformer = transformer_of(tokens)
    transformer(tokens_of(4, 15)).mul(torch.arange(8).cos()).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in transformer.parameters())
    assert [isinstance(block.narrow, StreamLinear) for block in transformer.blocks] == [tokens == "cross", False]


@every_form
@pytest.mark.parametrize("dropout", ["attention_dropout", "residual_dropout"])
@torch.no_grad()
def test_dropout_acts_in_training_alone(tokens: str, dropout: str) -> None:
    transformer, x = transformer_of(tokens, **{dropout: 0.5}), tokens_of(1, 6)
    assert torch.equal(transformer(x), transformer_of(tokens)(x))
    transformer.train()
    assert not torch.allclose(transformer(x), transformer(x))


@every_form
def test_initial_weights_have_the_spread_of_gpt2(tokens: str) -> None:
    config = replace(CONFIG, tokens=tokens, embed_dim=64, ff_dim=256, num_layers=8)
    for block in Transformer(config).blocks:
        for stream in range(size_of(tokens)):
            assert own(block.widen, stream).weight.std().item() == pytest.approx(0.02, rel=0.05)
            assert own(block.attention.qkv, stream).weight.std().item() == pytest.approx(0.02, rel=0.05)
            for last in (block.attention.out, block.narrow):
                assert own(last, stream).weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
                assert not own(last, stream).bias.any()
