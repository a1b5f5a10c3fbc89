"""The exported model computes what PyTorch computes, in every form of the model."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from demo_pages import small_model
from installed import INDUCTION

from icrl import extensions
from icrl.contracts import PipelineError
from icrl.extensions.demo.network import TOLERANCE, empty_columns, example_of, export_network, logits_of
from icrl.nn.gpt import GPT, context_of

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

INDUCED = f"model.induction={str(INDUCTION[-1]).lower()}"
FORMS = [(), ("model.tokens=cross", "model.position=rope", INDUCED, "model.num_kv_heads=1")]
if "recurrent" in extensions.NAMES:
    FORMS.append(("model.trunk=delta",))


@pytest.fixture(scope="module")
def exported() -> tuple[GPT, bytes]:
    """A small model, and its export."""
    model = small_model().model
    return model, export_network(model)


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_the_exported_model_equals_pytorch_step_by_step_and_at_once(options: tuple[str, ...]) -> None:
    model = small_model(*options).model
    window, expected = example_of(model)
    assert np.ptp(expected) > 100 * TOLERANCE
    assert np.abs(logits_of(export_network(model), model, window) - expected).max() < TOLERANCE


def test_attention_of_the_export_is_that_of_the_model(exported: tuple[GPT, bytes]) -> None:
    """The softmax over keys so far of the projections in each layer of PyTorch's model, which its kernels hide."""
    (model, content), (window, _) = exported, example_of(exported[0])
    projected, hooks = list[torch.Tensor](), list[Any]()
    for block in model.transformer.blocks:
        hooks.append(block.attention.qkv.register_forward_hook(lambda *found: projected.append(found[-1].detach())))
    context = context_of(window)
    with torch.no_grad():
        model(context)
    for hook in hooks:
        hook.remove()
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
    (attention,) = onnxruntime.InferenceSession(content).run(["attention"], given)
    np.testing.assert_allclose(attention, np.stack(expected), atol=1e-5)
    assert attention.max() > 0.5  # far from uniform, so the comparison says something


def test_an_export_that_computes_something_else_is_refused(exported: tuple[GPT, bytes], monkeypatch) -> None:
    other = deepcopy(exported[0])
    other.policy_head.bias.data[0] += 1e-3
    program = SimpleNamespace(model_proto=onnx.load_from_string(exported[1]))
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: program)
    assert export_network(exported[0]) == program.model_proto.SerializeToString()
    with pytest.raises(PipelineError, match="the exported model differs from PyTorch by 1"):
        export_network(other)
