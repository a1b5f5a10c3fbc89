"""GPT-2 of Hugging Face Transformers in the sizes of a configuration: training update, and generation with a cache.

It is built as its users would build it: embedding tables for the parts of a step, which GPT-2 reads as `inputs_embeds`,
and an optimizer of PyTorch.

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
from icrl.nn.gpt import Window, context_of
from icrl.nn.transformer import NUM_STREAMS
from icrl.spaces import EnvSpec


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
        sizes = {"obs": spec.num_obs, "prev_obs": spec.num_obs, "timestep": spec.max_episode_steps}
        sizes |= {"prev_action": spec.num_actions, "prev_reward": spec.num_rewards}
        self.tables = nn.ModuleDict({name: nn.Embedding(size, model.embed_dim) for name, size in sizes.items()})

    def embed(self, batch: Batch) -> Tensor:
        """Tokens `[B, T * N, D]` of a batch `[B, T]`, whose rewards are numbered."""
        context = context_of(Window.of(batch))
        part = {name: table(getattr(context, name).long()) for name, table in self.tables.items()}
        obs = part["obs"] + part["timestep"]
        if self.tokens_per_step == 1:
            return obs + part["prev_obs"] + part["prev_action"] + part["prev_reward"]
        return torch.stack([part["prev_action"], part["prev_reward"], obs], dim=2).flatten(1, 2)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Action logits of embedded tokens, `[B, T * N, D] -> [B, T, A]`."""
        hidden = self.trunk(inputs_embeds=tokens, past_key_values=cache, use_cache=cache is not None)
        return self.head(hidden.last_hidden_state[:, self.tokens_per_step - 1 :: self.tokens_per_step])


def gpt2_update(
    config: Config,
    spec: EnvSpec,
    attention: str,
    batch: Batch,
    clock: Clock,
    *,
    bfloat16: bool = False,
    muon: bool = False,
) -> Callable[[], object]:
    """Update of GPT-2 on `batch`, at the rates of `config.optimizer` at `clock`, with products in float32 or `bfloat16`
    (autocast). With `muon` the matrices of blocks are updated by `torch.optim.Muon`, all else by AdamW."""
    device, options = batch.obs.device, config.optimizer
    model = GPT2(config, spec, attention).to(device).train()
    rate, max_norm = (make_schedule(given)(clock) for given in (options.learning_rate, options.max_gradient_norm))
    blocks = [weight for weight in model.trunk.h.parameters() if muon and weight.ndim == 2]
    in_blocks = {id(weight) for weight in blocks}
    others = [weight for weight in model.parameters() if id(weight) not in in_blocks]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, rate, fused=True)]
    if blocks:
        optimizers.append(torch.optim.Muon(blocks, rate, adjust_lr_fn="match_rms_adamw"))

    def update() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            loss = F.cross_entropy(model(model.embed(batch)).flatten(0, 1), batch.action.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        for optimizer in optimizers:
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
