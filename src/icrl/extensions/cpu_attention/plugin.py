"""Registration of the layer in place of the core's, and of its caches."""

import torch

from icrl.extensions.cpu_attention.attention import AttentionOnCPU
from icrl.extensions.cpu_attention.caches import DenseCache, RowCache
from icrl.nn.gpt import CACHES, Trunk
from icrl.nn.transformer import ATTENTION, TRUNKS, Attention

ATTENTION.append(AttentionOnCPU)


# Where products of single rows are fast, by measurement on Intel's processors with AMX and on AMD's without
HAS_AMX = bool(getattr(torch.cpu, "get_capabilities", dict)().get("amx_tile"))


@CACHES.append
def _cache_of(model: Trunk, num_streams: int) -> DenseCache | RowCache | None:
    config, like = model.config, next(model.parameters())
    if TRUNKS[config.trunk] is not Attention or model.tokens_per_step > 1 or not like.is_cpu:
        return None
    shape = (config.num_layers, num_streams, config.kv_heads, config.context_len, config.head_dim)
    return (DenseCache if HAS_AMX else RowCache)(shape, model.cache_dtype or like.dtype)
