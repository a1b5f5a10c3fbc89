"""Transformers of one token or three streams per step, against attention in loops."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from models import outspoken
from torch import Tensor, nn

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.nn.transformer import Attention, StreamLinear, Transformer

CONFIG = replace(load_config().model, embed_dim=8, num_heads=2, num_layers=2, ff_dim=16, context_len=12)
WIDTH, HEADS, HEAD_DIM, SIZES = 8, 2, 4, {"transition": 1, "cross": 3}  # tokens per step
every_form = pytest.mark.parametrize("tokens", SIZES)


def own(linear: nn.Module, stream: int) -> nn.Module:
    return linear.streams[stream] if isinstance(linear, StreamLinear) else linear


def turned(vector: Tensor, position: int) -> Tensor:
    """Rotary code as complex numbers: channels i and i + half are one number, multiplied by exp(i * angle)."""
    half = len(vector) // 2
    angles = position * 10000 ** (-torch.arange(half) / half)
    numbers = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones(half), angles)
    return torch.cat([numbers.real, numbers.imag])


def attended(attention: Attention, x: Tensor, t: int, stream: int, *, rotary: bool) -> Tensor:
    """Attention of one stream at step t over all streams' steps up to t, of normed tokens `[T, G, D]`."""
    heads, groups = [], attention.sizes[1] // HEAD_DIM
    for head in range(CONFIG.num_heads):
        part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        group = head * groups // CONFIG.num_heads
        shared = slice(group * HEAD_DIM, (group + 1) * HEAD_DIM)
        query = own(attention.qkv, stream)(x[t, stream]).split(attention.sizes)[0][part]
        scores, values = [], []
        for u in range(t + 1):
            for other in range(x.shape[1]):
                _, key, value = own(attention.qkv, other)(x[u, other]).split(attention.sizes)
                pair = (turned(query, t), turned(key[shared], u)) if rotary else (query, key[shared])
                scores.append(pair[0] @ pair[1] / math.sqrt(HEAD_DIM))
                values.append(value[shared])
        heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
    return own(attention.out, stream)(torch.cat(heads))


def in_loops(transformer: Transformer, x: Tensor) -> Tensor:
    """The last stream `[T, D]` of tokens `[T, G, D]`, block by block, step by step, stream by stream."""
    for block in transformer.blocks:
        normed, after = block.attention_norm(x), torch.empty_like(x)
        for t in range(len(x)):
            for stream in range(x.shape[1]):
                rotary = transformer.config.position == "rope"
                y = x[t, stream] + attended(block.attention, normed, t, stream, rotary=rotary)
                active = F.gelu(own(block.widen, stream)(block.feed_forward_norm(y)))
                after[t, stream] = y + own(block.narrow, stream)(active)
        x = after
    return transformer.norm(x[:, -1])


@every_form
@pytest.mark.parametrize("position", ["none", "rope"])
@pytest.mark.parametrize("num_kv_heads", [1, 0])
@torch.no_grad()
def test_a_transformer_equals_loops(tokens: str, position: str, num_kv_heads: int) -> None:
    config = replace(CONFIG, tokens=tokens, position=position, num_kv_heads=num_kv_heads)
    transformer, size = outspoken(Transformer(config), 0.4).eval(), SIZES[tokens]
    x = torch.randn(2, 4 * size, CONFIG.embed_dim, generator=torch.Generator().manual_seed(0))
    got = transformer(x)
    for stream in range(2):
        expected = in_loops(transformer, x[stream].unflatten(0, (4, size)))
        assert torch.allclose(got[stream], expected, atol=1e-4)


@every_form
def test_initial_weights_have_the_spread_of_gpt2(tokens: str) -> None:
    config = replace(CONFIG, tokens=tokens, embed_dim=64, ff_dim=256, num_layers=8)
    for block, stream in itertools.product(Transformer(config).blocks, range(SIZES[tokens])):
        for last in (own(block.attention.out, stream), own(block.narrow, stream)):
            assert last.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05) and not last.bias.any()
        first = own(block.widen, stream), own(block.attention.qkv, stream)
        for linear in first:
            assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05)
