"""The exported model computes what PyTorch computes, in every form of the model."""

import numpy as np
import pytest
import torch
from demo_pages import small_model
from onnxruntime import InferenceSession

from icrl.contracts import PipelineError
from icrl.demo import network
from icrl.demo.network import TOLERANCE, empty_columns, example_of, export_network, logits_of
from icrl.nn.gpt import context_of

FORMS = (
    ("model.position=learned", "model.num_kv_heads=1"),
    ("model.tokens=cross", "model.position=rope", "model.induction=true"),
    ("model.trunk=delta",),
)


@pytest.mark.parametrize("options", FORMS, ids=lambda options: options[0])
def test_exported_models_equal_pytorch_step_by_step_and_at_once(options: tuple[str, ...]) -> None:
    model = small_model(*options).model
    content = export_network(model)
    window, expected = example_of(model)
    assert np.ptp(expected) > 100 * TOLERANCE
    assert np.abs(logits_of(content, model, window) - expected).max() < TOLERANCE


def test_attention_of_the_export_is_that_of_the_model() -> None:
    """The softmax over keys so far of the projections in each layer of PyTorch's model, which its kernels hide."""
    model = small_model().model
    content, (window, _) = export_network(model), example_of(model)
    projected: list[torch.Tensor] = []
    for block in model.transformer.blocks:
        block.attention.qkv.register_forward_hook(lambda module, given, found: projected.append(found.detach()))
    context = context_of(window)
    with torch.no_grad():
        model(context)
    num_steps, heads, causal = window.obs.shape[1], 2, torch.ones(24, 24).tril()
    expected = []
    for found in projected:
        query, key = (part.view(num_steps, heads, -1).transpose(0, 1) for part in found[0].split(16, dim=-1)[:2])
        scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(causal == 0, -torch.inf)
        expected.append(scores.softmax(-1).numpy())
    numbers = (context.prev_obs, context.prev_action, context.prev_timestep, context.obs, context.timestep)
    steps = torch.stack([*numbers, context.first.long()], -1)[0].int().numpy()
    given = {"steps": steps, "prev_reward": context.prev_reward[0].numpy()}
    given |= {f"cache_{i}": column.numpy() for i, column in enumerate(empty_columns(model))}
    (attention,) = InferenceSession(content).run(["attention"], given)
    np.testing.assert_allclose(attention, np.stack(expected), atol=1e-5)
    assert attention.max() > 0.5  # far from uniform, so the comparison says something


def test_an_export_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model().model
    monkeypatch.setattr(network, "logits_of", lambda content, model, window: logits_of(content, model, window) + 1e-3)
    with pytest.raises(PipelineError, match="exported model differs from PyTorch by 1"):
        export_network(model)
