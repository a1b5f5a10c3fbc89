"""The induction layer against loops, and its place in a model."""

import math

import pytest
import torch
from models import outspoken
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.envs import make_env
from icrl.extensions.induction import layer
from icrl.extensions.induction.layer import Induction, Lookup
from icrl.nn.gpt import GPT, Context, Window, context_of

WIDTH, HEADS, HEAD_DIM = 16, 2, 8
CONFIG = replace(load_config().model, context_len=12, embed_dim=WIDTH, num_heads=HEADS, induction=1)


def test_initial_weights_have_the_spread_of_gpt2() -> None:
    induction = Induction(replace(CONFIG, embed_dim=64))
    for linear in (induction.query, induction.key_value, induction.out):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05) and not linear.bias.any()
    assert induction.no_visit.std().item() == pytest.approx(0.02, rel=0.25) and not induction.recency.any()


def induced(induction: Lookup, x: Tensor, outcome: Tensor, obs: Tensor) -> Tensor:
    """One stream, step by step and head by head; step j + 1 shows the outcome of step j."""
    query = induction.query(induction.norm(x))
    key, value = induction.key_value(induction.outcome_norm(outcome)).split(WIDTH, dim=-1)
    rows = []
    for t in range(len(x)):
        heads = []
        for head in range(HEADS):
            part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            no_key, no_value = induction.no_visit[:, head, 0]
            scores, values, newer = [query[t, part] @ no_key / math.sqrt(HEAD_DIM)], [no_value], 0
            for j in reversed(range(t)):
                if obs[j] == obs[t]:
                    newer += 1
                    preference = induction.recency[head, 0, 0] * math.log(newer)
                    scores.append(query[t, part] @ key[j + 1, part] / math.sqrt(HEAD_DIM) - preference)
                    values.append(value[j + 1, part])
            heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
        rows.append(induction.out(torch.cat(heads)))
    return torch.stack(rows)


def looked_up(induction: Induction, x: Tensor, outcome: Tensor, obs: Tensor, unit: Tensor) -> Tensor:
    """All layers of one stream, each of which reads the tokens that those before have left in the step it finds."""
    after = x + induced(induction, x, outcome, obs)
    for reached, further in zip(induction.reached, induction.further, strict=True):
        after = after + induced(further, after, outcome + (1 + unit) * reached(after), obs)
    return after - x


@pytest.mark.parametrize(("number", "queries"), [(1, 128), (3, 4)])
@pytest.mark.parametrize("binding", [False, True])
def test_outputs_and_gradients_equal_loops(
    monkeypatch: pytest.MonkeyPatch, number: int, queries: int, binding: bool
) -> None:
    monkeypatch.setattr(layer, "QUERIES", queries)
    induction = outspoken(Induction(replace(CONFIG, induction=number)), 0.5).eval()
    generator = torch.Generator().manual_seed(9)
    obs = torch.randint(3, (2, 9), generator=generator)  # with many matches
    context = context_of(Window(obs, obs, obs.float(), obs))
    x, outcome, weight, unit = torch.randn(4, 2, 9, WIDTH, generator=generator)
    got = induction(x, outcome, context, unit if binding else None, None)
    each = zip(x, outcome, obs, unit * binding, strict=True)
    expected = torch.stack([looked_up(induction, *columns) for columns in each])
    assert torch.allclose(got, expected, atol=1e-4)
    parameters = list(induction.parameters())
    ours, theirs = (torch.autograd.grad((output * weight).sum(), parameters) for output in (got, expected))
    for mine, reference in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, reference, atol=1e-3) and mine.abs().max() > 1e-3


@pytest.mark.parametrize(("dtype", "tolerance"), [(None, 1e-5), (torch.bfloat16, 0.03)])
def test_steps_that_read_a_cache_equal_all_at_once(dtype: torch.dtype | None, tolerance: float) -> None:
    """A cache in bfloat16, as trials have it, rounds keys and values."""
    model = outspoken(GPT(replace(CONFIG, induction=3, binding=True), make_env(load_config().env).spec), 0.3).eval()
    model.cache_dtype = dtype
    cache, obs = model.new_cache(2), torch.randint(3, (2, 9), generator=torch.Generator().manual_seed(9))
    context = context_of(Window(obs, obs % 5, (obs > 1).float(), obs))
    with torch.no_grad():
        at_once = model(context)
        parts = [slice(0, 3), slice(3, 4), slice(4, 9)]
        steps = [model(Context(*(column[:, part] for column in context)), cache) for part in parts]
    error = (torch.cat(steps, dim=1) - at_once).abs().max() / at_once.abs().max()
    assert error < tolerance and cache[1].columns[0].dtype == (dtype or torch.float32)


@pytest.mark.parametrize("name", ["attention_dropout", "residual_dropout"])
def test_dropout_acts_in_training_alone(name: str) -> None:
    induction = outspoken(Induction(replace(CONFIG, **{name: 0.5})), 0.5)
    obs, x = torch.zeros(1, 9, dtype=torch.long), torch.randn(1, 9, WIDTH, generator=torch.Generator().manual_seed(9))
    given = x, x, context_of(Window(obs, obs, obs.float(), obs)), None, None
    assert not torch.equal(induction(*given), induction(*given))
    induction.eval()
    assert torch.equal(induction(*given), induction(*given))
