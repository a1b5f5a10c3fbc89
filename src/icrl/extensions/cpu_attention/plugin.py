"""Registration of the layer in place of the core's, and of its cache."""

from icrl.extensions.cpu_attention.attention import AttentionOnCPU
from icrl.extensions.cpu_attention.row_cache import RowCache
from icrl.nn.gpt import CACHES, Trunk
from icrl.nn.transformer import ATTENTION, TRUNKS, Attention

ATTENTION.append(AttentionOnCPU)


@CACHES.append
def _cache_of(model: Trunk, num_streams: int) -> RowCache | None:
    config, like = model.config, next(model.parameters())
    if TRUNKS[config.trunk] is not Attention or model.tokens_per_step > 1 or not like.is_cpu:
        return None
    shape = (config.num_layers, num_streams, config.kv_heads, config.context_len, config.head_dim)
    return RowCache(shape, model.cache_dtype or like.dtype)
