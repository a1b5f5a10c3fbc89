"""Attention that is written out, against that of PyTorch, and its caches against that of the core."""

import pytest
import torch
from models import outspoken

from icrl.extensions.cpu_attention import attention as module
from icrl.extensions.cpu_attention import plugin
from icrl.extensions.cpu_attention.attention import AttentionOnCPU
from icrl.extensions.cpu_attention.caches import DenseCache, RowCache
from icrl.nn.cache import KVCache
from icrl.nn.gpt import GPT, Context, GPTConfig, Window, context_of
from icrl.nn.transformer import Attention
from icrl.spaces import discrete_spec


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("most_queries", [4, 160])
@pytest.mark.parametrize(("length", "is_causal", "masked"), [(1, False, False), (6, True, False), (3, False, True)])
def test_written_out_attention_equals_that_of_pytorch(
    monkeypatch: pytest.MonkeyPatch, groups: int, length: int, is_causal: bool, masked: bool, most_queries: int
) -> None:
    """In float64 to rounding, in bfloat16 (which is written out on a CPU) to its three digits; so do gradients."""
    monkeypatch.setattr(module, "MOST_QUERIES", most_queries)
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(2, heads, 6, 8, generator=generator).double() for heads in (4, groups, groups)]
    parts[0] = parts[0][:, :, :length]
    mask = torch.rand(length, 6, generator=generator) < 0.5 if masked else None
    if mask is not None:
        mask[:, 0] = True
    weight = torch.randn(2, 4, length, 8, generator=generator).double()
    found = []
    pairs = ((Attention, torch.float64), (AttentionOnCPU, torch.float64), (AttentionOnCPU, torch.bfloat16))
    for layer, dtype in pairs:
        leaves = [part.detach().to(dtype).requires_grad_() for part in parts]
        mixed = layer.attend(*leaves, mask, 0.0, is_causal)
        (mixed * weight).sum().backward()
        found.append([mixed.detach().double(), *(leaf.grad.double() for leaf in leaves)])
    for expected, exact, rounded in zip(*found, strict=True):
        assert torch.allclose(exact, expected, atol=1e-12)
        assert torch.allclose(rounded, expected, atol=0.05) and not torch.equal(rounded, expected)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 0.03)]
)
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("is_dense", [True, False])
def test_caches_attend_as_that_of_the_core(is_dense: bool, heads: int, dtype: torch.dtype, tolerance: float) -> None:
    """Over several blocks, after many tokens at once, with streams replaced by those of another cache."""
    torch.manual_seed(0)
    layers, streams, groups, width, capacity = 2, 3, 2, 16, 80
    shape = layers, streams, groups, capacity, width
    made = [(DenseCache if is_dense else RowCache)(shape, dtype) for _ in range(2)]
    form = torch.promote_types(dtype, torch.float32)  # of queries
    plain = [KVCache(*torch.zeros(2, *shape, dtype=form)) for _ in range(2)]

    def step(length: int) -> None:
        for rows, columns in zip(made, plain, strict=True):
            for layer in range(layers):
                query = torch.randn(streams, heads, length, width, dtype=form)
                key, value = torch.randn(2, streams, groups, length, width, dtype=form)
                expected = columns.append(layer, key, value)
                if length == 1:
                    mixed = Attention.attend(query, *expected, None, 0.0, False)
                    assert torch.allclose(rows.attend(layer, query, key, value), mixed, atol=tolerance)
                else:
                    for own, other in zip(rows.append(layer, key, value), expected, strict=True):
                        assert torch.allclose(own, other, atol=tolerance)
            rows.length += length
            columns.length += length

    for length in (33, 1, 4, 1, 30):
        step(length)
    for caches in (made, plain):
        caches[0].replace(torch.tensor([2, 0, 1]), caches[1])
    step(1)


@pytest.mark.parametrize("has_amx", [False, True])
def test_the_processor_chooses_the_cache_and_gradients_need_not_be_off(
    monkeypatch: pytest.MonkeyPatch, has_amx: bool
) -> None:
    """Steps that are read one after the other give the logits of all at once."""
    monkeypatch.setattr(plugin, "HAS_AMX", has_amx)
    config = GPTConfig(context_len=6, embed_dim=16, num_layers=2, num_heads=2, ff_dim=16)
    model = outspoken(GPT(config, discrete_spec(9, 5, (0.0, 1.0), 3, 6))).eval()
    context = context_of(Window.empty(model.spec, 3, 6, torch.device("cpu")))
    cache = model.new_cache(3)
    assert isinstance(cache[0], DenseCache if has_amx else RowCache)
    each = [model(Context(*(column[:, t : t + 1] for column in context)), cache) for t in range(6)]
    assert torch.allclose(torch.cat(each, dim=1), model(context), atol=1e-4)
