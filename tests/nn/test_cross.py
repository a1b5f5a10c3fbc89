"""The transformer of three streams against attention written out step by step, and its cache against no cache."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.nn.cross import CrossTransformer, StreamLinear
from icrl.nn.kv_cache import KVCache
from icrl.nn.transformer import rotate

CONFIG = replace(load_config().model, embed_dim=8, num_heads=2, num_layers=2, ff_dim=16, tokens="cross")
HEAD_DIM, STREAMS = 4, 3


def cross(position: str = "none", **changes: float) -> CrossTransformer:
    """Parameters so large that every part shows in what comes out."""
    transformer = CrossTransformer(replace(CONFIG, position=position, **changes))
    return outspoken(transformer, 0.4).eval()


def tokens_of(num_streams: int, num_steps: int) -> Tensor:
    generator = torch.Generator().manual_seed(num_steps)
    return torch.randn(num_streams, num_steps * STREAMS, CONFIG.embed_dim, generator=generator)


def own(linear: nn.Module, stream: int) -> nn.Module:
    return linear.streams[stream] if isinstance(linear, StreamLinear) else linear


def turned(vector: Tensor, position: int) -> Tensor:
    return rotate(vector[None, None, None], position)[0, 0, 0]


def attended(attention: nn.Module, x: Tensor, t: int, asking: int, *, rotary: bool) -> Tensor:
    """What stream `asking` at step t reads from all streams' steps up to t, of normed tokens `[T, 3, D]`."""
    heads = []
    for head in range(CONFIG.num_heads):
        part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        query = own(attention.qkv, asking)(x[t, asking]).split(CONFIG.embed_dim)[0][part]
        scores, values = [], []
        for u in range(t + 1):
            for stream in range(STREAMS):
                _, key, value = own(attention.qkv, stream)(x[u, stream]).split(CONFIG.embed_dim)
                pair = (turned(query, t), turned(key[part], u)) if rotary else (query, key[part])
                scores.append(pair[0] @ pair[1] / math.sqrt(HEAD_DIM))
                values.append(value[part])
        heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
    return own(attention.out, asking)(torch.cat(heads))


def in_loops(transformer: CrossTransformer, x: Tensor, *, rotary: bool) -> Tensor:
    """The state stream `[T, D]` of one stream's tokens `[T, 3, D]`."""
    for block in transformer.blocks:
        normed, after = block.attention_norm(x), torch.empty_like(x)
        for t in range(len(x)):
            for stream in range(STREAMS):
                y = x[t, stream] + attended(block.attention, normed, t, stream, rotary=rotary)
                wide = F.gelu(own(block.widen, stream)(block.feed_forward_norm(y)))
                after[t, stream] = y + own(block.narrow, stream)(wide)
        x = after
    return transformer.norm(x[:, 2])


@pytest.mark.parametrize("position", ["none", "rope"])
@torch.no_grad()
def test_the_state_stream_equals_loops(position: str) -> None:
    transformer, x = cross(position), tokens_of(2, 5)
    got = transformer(x)
    for stream in range(2):
        expected = in_loops(transformer, x[stream].unflatten(0, (5, STREAMS)), rotary=position == "rope")
        assert torch.allclose(got[stream], expected, atol=1e-4)


@pytest.mark.parametrize("position", ["none", "rope"])
@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_chunks_through_the_cache_equal_one_forward(position: str, lengths: list[int]) -> None:
    transformer, x = cross(position), tokens_of(2, sum(lengths))
    cache = KVCache(CONFIG.num_layers, 2, CONFIG.num_heads, 90, HEAD_DIM, torch.zeros(1))
    with torch.no_grad():
        chunks = [transformer(chunk, cache) for chunk in x.split([STREAMS * length for length in lengths], dim=1)]
        assert torch.allclose(torch.cat(chunks, dim=1), transformer(x), atol=1e-5)
    assert cache.length == STREAMS * sum(lengths)


@torch.no_grad()
def test_each_token_of_a_step_is_seen_from_that_step_on() -> None:
    transformer, x = cross(), tokens_of(1, 4)
    before = transformer(x)
    for token in range(4 * STREAMS):
        changed = x.clone()
        changed[:, token] += torch.arange(CONFIG.embed_dim).cos()
        moved = (transformer(changed) - before).abs().amax(dim=(0, 2)) > 1e-5
        assert moved.tolist() == [t >= token // STREAMS for t in range(4)]


def test_every_parameter_learns() -> None:
    """The last block has none for the streams that nobody reads."""
    transformer = cross()
    transformer(tokens_of(4, 5)).mul(torch.arange(8).cos()).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in transformer.parameters())
    assert [isinstance(block.narrow, StreamLinear) for block in transformer.blocks] == [True, False]


@pytest.mark.parametrize("dropout", ["attention_dropout", "residual_dropout"])
@torch.no_grad()
def test_dropout_acts_in_training_alone(dropout: str) -> None:
    transformer, x = cross(**{dropout: 0.5}), tokens_of(1, 6)
    assert torch.equal(transformer(x), cross()(x))
    transformer.train()
    assert not torch.allclose(transformer(x), transformer(x))


def test_initial_weights_have_gpt2s_spread() -> None:
    transformer = CrossTransformer(replace(CONFIG, embed_dim=64, ff_dim=256, num_layers=2))
    for stream in range(STREAMS):
        block = transformer.blocks[0]
        for linear, std in ((block.attention.qkv, 0.02), (block.widen, 0.02)):
            assert own(linear, stream).weight.std().item() == pytest.approx(std, rel=0.05)
        for block in transformer.blocks:
            for last in (block.attention.out, block.narrow):
                assert own(last, stream).weight.std().item() == pytest.approx(0.02 / 2, rel=0.05)
                assert not own(last, stream).bias.any()
