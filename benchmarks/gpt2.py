"""GPT-2 of Hugging Face Transformers in the sizes of a configuration: training update, and generation with a cache.

B windows or streams, T steps, N tokens of a step (1, or 3 unless model.tokens=transition), D width, A actions.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache, GPT2Config, GPT2Model  # type: ignore  # needs benchmarks/requirements.txt

from icrl.app.root import Config
from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import Batch
from icrl.nn.transformer import NUM_STREAMS
from icrl.spaces import EnvSpec
from icrl.training.optimizers import make_optimizer, set_rates


class GPT2(nn.Module):
    """GPT-2 in the sizes of `config.model`, with a linear head on the last token of each step."""

    def __init__(self, config: Config, spec: EnvSpec, attention: str) -> None:
        super().__init__()
        model = config.model
        self.tokens_per_step = 1 if model.tokens == "transition" else NUM_STREAMS
        self.options = GPT2Config(
            vocab_size=1,
            bos_token_id=None,
            eos_token_id=None,
            n_positions=model.context_len * self.tokens_per_step,
            n_embd=model.embed_dim,
            n_layer=model.num_layers,
            n_head=model.num_heads,
            n_inner=model.ff_dim,
            activation_function="gelu",
            resid_pdrop=model.residual_dropout,
            embd_pdrop=model.embedding_dropout,
            attn_pdrop=model.attention_dropout,
        )
        self.options._attn_implementation = attention
        self.trunk, self.head = GPT2Model(self.options), nn.Linear(model.embed_dim, spec.num_actions)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Action logits of embedded tokens, `[B, T * N, D] -> [B, T, A]`."""
        hidden = self.trunk(inputs_embeds=tokens, past_key_values=cache, use_cache=cache is not None)
        return self.head(hidden.last_hidden_state[:, self.tokens_per_step - 1 :: self.tokens_per_step])


def gpt2_update(
    config: Config, spec: EnvSpec, attention: str, batch: Batch, clock: Clock, *, bfloat16: bool = False
) -> Callable[[], object]:
    """Update of GPT-2 on random tokens and the actions of `batch`, with the configured optimizer at `clock` (Muon finds
    none of its matrices, so it is AdamW here) and products in float32 or `bfloat16` (autocast)."""
    device = batch.obs.device
    model = GPT2(config, spec, attention).to(device).train()
    optimizer = make_optimizer(model, config.optimizer)
    max_norm = make_schedule(config.optimizer.max_gradient_norm)(clock)
    set_rates(optimizer, config.optimizer, clock)
    num_windows, num_steps = batch.obs.shape
    tokens = torch.randn(num_windows, num_steps * model.tokens_per_step, config.model.embed_dim, device=device)

    def update() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), batch.action.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()

    return update


@torch.inference_mode()
def generate(model: GPT2, make_cache: Callable[[], Cache], num_streams: int, num_steps: int) -> int:
    """Logits of every step of one context, step by step; returns the number of steps of all streams."""
    cache, like = make_cache(), model.head.weight
    tokens = like.new_empty(num_streams, model.tokens_per_step, model.options.n_embd).normal_()
    for _ in range(num_steps):
        model(tokens, cache)
    return num_streams * num_steps
