"""The transformer against attention written out in loops, and its cache against no cache."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import ModelConfig
from icrl.nn.kv_cache import KVCache
from icrl.nn.transformer import Attention, Block, Transformer, rotate

CONFIG = replace(load_config().model, embed_dim=8, num_heads=2, num_layers=3, ff_dim=16)
HEAD_DIM = 4


def randomize(module: nn.Module, std: float = 0.4) -> nn.Module:
    """Parameters so large that every part of the module shows in what comes out."""
    return outspoken(module, std).eval()


def config_of(position: str, **changes: float) -> ModelConfig:
    return replace(CONFIG, position=position, **changes)


def new_cache(num_streams: int, capacity: int) -> KVCache:
    return KVCache(CONFIG.num_layers, num_streams, CONFIG.num_heads, capacity, HEAD_DIM, torch.zeros(1))


def tokens_of(num_streams: int, length: int, seed: int = 0) -> Tensor:
    return torch.randn(num_streams, length, CONFIG.embed_dim, generator=torch.Generator().manual_seed(seed))


def turned(vector: Tensor, position: int) -> Tensor:
    """Rotary code as complex numbers: channel i and channel i + half are one number, multiplied by exp(i * angle)."""
    half = len(vector) // 2
    numbers = [
        complex(vector[i], vector[i + half]) * complex(math.cos(angle), math.sin(angle))
        for i, angle in ((i, position * 10000 ** (-i / half)) for i in range(half))
    ]
    return torch.tensor([number.real for number in numbers] + [number.imag for number in numbers])


def attention_in_loops(attention: Attention, x: Tensor, *, rotary: bool) -> Tensor:
    """Query by query, head by head: softmax over the keys so far of q.k / sqrt(Dh), then the mean of their values."""
    length, width = x.shape
    weight, bias = attention.qkv.weight, attention.qkv.bias
    query, key, value = (
        x @ weight[i * width : (i + 1) * width].T + bias[i * width : (i + 1) * width] for i in range(3)
    )
    mixed = torch.zeros(length, width)
    for head in range(CONFIG.num_heads):
        part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        for i in range(length):
            scores = []
            for j in range(i + 1):
                q, k = query[i, part], key[j, part]
                if rotary:
                    q, k = turned(q, i), turned(k, j)
                scores.append(float(q @ k) / math.sqrt(HEAD_DIM))
            weights = [math.exp(score - max(scores)) for score in scores]
            for j in range(i + 1):
                mixed[i, part] += weights[j] / sum(weights) * value[j, part]
    return mixed @ attention.out.weight.T + attention.out.bias


@pytest.mark.parametrize("position", ["none", "rope"])
def test_attention_equals_loops(position: str) -> None:
    attention = randomize(Attention(config_of(position)))
    x = tokens_of(2, 6)
    with torch.no_grad():
        got = attention(x, None, 0)
        for stream in range(2):
            expected = attention_in_loops(attention, x[stream], rotary=position == "rope")
            assert torch.allclose(got[stream], expected, atol=1e-5)


def test_rotary_products_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(1))

    def product(i: int, j: int) -> float:
        return float((rotate(query, i) * rotate(key, j)).sum())

    for i, j, shift in ((0, 0, 5), (3, 1, 40), (100, 20, 300), (7, 30, 11)):
        assert product(i, j) == pytest.approx(product(i + shift, j + shift), abs=1e-4)
    assert abs(product(3, 1) - product(4, 1)) > 0.01
    assert abs(product(3, 1) - product(1, 3)) > 0.01


@pytest.mark.parametrize("position", ["none", "rope"])
@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_chunks_through_the_cache_equal_one_forward(position: str, lengths: list[int]) -> None:
    transformer = randomize(Transformer(config_of(position)))
    x = tokens_of(2, sum(lengths))
    cache = new_cache(2, 30)
    with torch.no_grad():
        chunks = [transformer(chunk, cache) for chunk in x.split(lengths, dim=1)]
        assert torch.allclose(torch.cat(chunks, dim=1), transformer(x), atol=1e-5)
    assert cache.length == sum(lengths)


def test_an_emptied_cache_remembers_nothing() -> None:
    transformer = randomize(Transformer(config_of("rope")))
    cache = new_cache(1, 10)
    with torch.no_grad():
        transformer(tokens_of(1, 9, seed=1), cache)
        cache.length = 0
        x = tokens_of(1, 4, seed=2)
        assert torch.allclose(transformer(x, cache), transformer(x), atol=1e-5)


def test_order_matters_with_a_position_code_and_does_not_without() -> None:
    """Causal attention reads a set: only a position code tells it in which order the earlier tokens came."""
    x = tokens_of(1, 5)
    swapped = x[:, [1, 0, 2, 3, 4]]
    with torch.no_grad():
        for position, order_matters in (("none", False), ("rope", True)):
            one_layer = randomize(Transformer(config_of(position, num_layers=1)))
            moved = (one_layer(x) - one_layer(swapped))[:, -1].abs().max()
            assert (moved > 1e-3) == order_matters


def test_blocks_add_to_the_residual_stream() -> None:
    """With silent output layers a transformer is its final norm."""
    transformer = randomize(Transformer(config_of("none")))
    x = tokens_of(1, 4)
    with torch.no_grad():
        assert not torch.allclose(transformer(x), transformer.norm(x), atol=0.1)
        for block in transformer.blocks:
            for last in (block.attention.out, block.narrow):
                last.weight.zero_()
                last.bias.zero_()
        assert torch.allclose(transformer(x), transformer.norm(x))


@pytest.mark.parametrize("dropout", ["attention_dropout", "residual_dropout"])
def test_dropout_acts_in_training_alone(dropout: str) -> None:
    transformer = randomize(Transformer(config_of("none", **{dropout: 0.5})))
    without = randomize(Transformer(config_of("none")))
    x = tokens_of(1, 6)
    with torch.no_grad():
        assert torch.equal(transformer(x), without(x))
        transformer.train()
        assert not torch.allclose(transformer(x), transformer(x))


def test_initial_weights_have_gpt2s_spread() -> None:
    transformer = Transformer(replace(CONFIG, embed_dim=64, num_heads=2, ff_dim=256, num_layers=8))
    for block in transformer.blocks:
        assert block.widen.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert block.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
        for last in (block.attention.out, block.narrow):
            assert last.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_a_block_equals_its_equation(activation: str) -> None:
    """x + out(attention(norm(x))), then x + narrow(f(widen(norm(x)))), channel by channel f."""
    block = randomize(Block(replace(config_of("none"), activation=activation)))
    x = tokens_of(1, 4)

    def f(value: float) -> float:
        return max(0.0, value) if activation == "relu" else value * (1 + math.erf(value / math.sqrt(2))) / 2

    mixed = x + block.attention(block.attention_norm(x), None, 0)
    wide = block.widen(block.feed_forward_norm(mixed))
    expected = mixed + block.narrow(torch.tensor([f(value) for value in wide.flatten().tolist()]).view_as(wide))
    assert torch.allclose(block(x, None, 0), expected, atol=1e-5)
