"""Recurrent layers against their equations in loops over streams, heads and tokens."""

import pytest
import torch
import torch.nn.functional as F
from models import outspoken
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.extensions.recurrent.layers import CHUNK, GRU, GatedDelta, gated_delta
from icrl.nn.transformer import TRUNKS

CONFIG = replace(load_config().model, trunk="delta", embed_dim=8, num_heads=2, num_layers=2, ff_dim=16)
HEADS, HEAD_DIM, LONG = 2, 4, 2 * CHUNK + 5
every_trunk = pytest.mark.parametrize("trunk", ["delta", "gru"])


def columns(length: int, width: int = HEAD_DIM) -> list[Tensor]:
    """Queries, keys, values, b, log a of tokens, and a state, of two streams in float64."""
    generator = torch.Generator().manual_seed(0)
    many = [torch.randn(2, HEADS, length, width, generator=generator).double() for _ in range(3)]
    many[:2] = [F.normalize(part, dim=-1) for part in many[:2]]
    rate, kept = torch.rand(2, 2, HEADS, length, 1, generator=generator).double()
    return [*many, rate, kept.log(), torch.randn(2, HEADS, width, width, generator=generator).double()]


def in_loops(query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_kept: Tensor, state: Tensor) -> list[Tensor]:
    """One head of one stream, token by token: S <- a (1 - b k k^T) S + b k v^T."""
    outputs = []
    for q, k, v, b, log_a in zip(query, key, value, rate, log_kept, strict=True):
        state = log_a.exp() * (torch.eye(len(k)) - b * torch.outer(k, k)).to(state.dtype) @ state
        state = state + b * torch.outer(k, v)
        outputs.append(state.mT @ q)
    return [torch.stack(outputs), state]


@pytest.mark.parametrize("length", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, LONG])
def test_chunks_equal_loops_and_so_do_gradients(length: int) -> None:
    leaves, generator = [column.requires_grad_() for column in columns(length)], torch.Generator().manual_seed(1)
    rows = [[in_loops(*(leaf[stream, head] for leaf in leaves)) for head in range(HEADS)] for stream in range(2)]
    expected = [torch.stack([torch.stack([pair[i] for pair in row]) for row in rows]) for i in range(2)]
    got = gated_delta(*leaves)
    weights = [torch.randn(part.shape, generator=generator).double() for part in expected]
    ours, theirs = (torch.autograd.grad(parts, leaves, weights) for parts in (got, expected))
    for mine, reference in zip((*got, *ours), (*expected, *theirs), strict=True):
        assert torch.allclose(mine, reference, atol=1e-10)


def test_a_key_that_is_written_at_every_step_stays_exact_in_float32() -> None:
    query, key, value, *_, state = columns(160)
    same, rate = key[:, :, :1].expand_as(key), torch.full_like(query[..., :1], 0.999)
    parts = (query, same, value, rate, -1e-4 * torch.ones_like(rate), state)
    for got, expected in zip(gated_delta(*(part.float() for part in parts)), gated_delta(*parts), strict=True):
        assert torch.allclose(got.double(), expected, atol=1e-5)


@torch.no_grad()
def test_the_delta_layer_equals_its_equation() -> None:
    layer = outspoken(GatedDelta(CONFIG), 0.5)
    x = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(0))
    got = layer(x, None, 0)
    for stream in range(2):
        query, key, value, gate, rate, kept = layer.inputs(x[stream]).split(layer.inputs.sizes, dim=-1)
        heads = []
        for head in range(HEADS):
            part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            unit = [column[:, part] / column[:, part].norm(dim=-1, keepdim=True) for column in (query, key)]
            kept_of_head = (kept[:, head] + layer.kept[head, 0]).sigmoid().log()
            output, _ = in_loops(*unit, value[:, part], rate[:, head].sigmoid(), kept_of_head, torch.zeros(4, 4))
            scaled = output / (output.square().mean(-1, keepdim=True) + torch.finfo().eps).sqrt() * layer.norm.weight
            heads.append(scaled * gate[:, part] * gate[:, part].sigmoid())
        assert torch.allclose(got[stream], layer.out(torch.cat(heads, dim=-1)), atol=1e-5)


@torch.no_grad()
def test_the_gru_equals_its_equation() -> None:
    """h <- (1 - z) n + z h, n = tanh(W x + r (U h)), gates r and z sigmoids, at first h = 0."""
    layer = outspoken(GRU(CONFIG), 0.5)
    x = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(0))
    weights = dict(layer.gru.named_parameters())
    h = torch.zeros(2, 8)
    for t, got in enumerate(layer(x, None, 0).unbind(1)):
        read = x[:, t] @ weights["weight_ih_l0"].mT + weights["bias_ih_l0"]
        held = h @ weights["weight_hh_l0"].mT + weights["bias_hh_l0"]
        (r, z, new), (hr, hz, hn) = (part.chunk(3, dim=-1) for part in (read, held))
        z = (z + hz).sigmoid()
        h = (1 - z) * (new + (r + hr).sigmoid() * hn).tanh() + z * h
        assert torch.allclose(got, layer.out(h), atol=1e-5), t


@every_trunk
def test_mixed_precision_rounds_the_linear_layers_alone(trunk: str) -> None:
    layer = outspoken(TRUNKS[trunk](CONFIG), 0.3)
    x = torch.randn(2, LONG, 8, generator=torch.Generator().manual_seed(0))
    expected = layer(x, None, 0)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x, None, 0)
    assert got.dtype == torch.bfloat16 and torch.allclose(got.float(), expected, atol=0.05)
    assert not torch.equal(got.float(), expected)
    got.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
