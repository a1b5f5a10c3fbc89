"""The induction layer against a loop over visits, and what a model reads through it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import EnvSpec
from icrl.nn.gpt import GPT, context_of
from icrl.nn.transformer import NO_VISIT, Induction, KVCache

CONFIG = replace(load_config().model, embed_dim=8, num_heads=2, ff_dim=16, num_layers=1, context_len=12)
SPEC = EnvSpec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
WIDTH, HEADS, HEAD_DIM = 8, 2, 4


def layer(**changes: float) -> Induction:
    made = Induction(replace(CONFIG, **changes))
    outspoken(made, 0.5)
    return made.eval()


def inputs(num_streams: int, length: int, num_obs: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, outcomes, visited and current observations of random walks with many matches."""
    generator = torch.Generator().manual_seed(length)
    obs = torch.randint(num_obs, (num_streams, length), generator=generator)
    visited = torch.cat([torch.full((num_streams, 1), NO_VISIT), obs[:, :-1]], dim=1)
    x, outcome = torch.randn(2, num_streams, length, WIDTH, generator=generator)
    return x, outcome, visited, obs


def in_loops(induction: Induction, x: Tensor, outcome: Tensor, obs: Tensor) -> Tensor:
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


def test_outputs_and_gradients_equal_loops() -> None:
    induction = layer()
    x, outcome, visited, obs = inputs(2, 9)
    weight = torch.randn(2, 9, WIDTH, generator=torch.Generator().manual_seed(5))
    got = induction(x, outcome, visited, obs, None)
    expected = torch.stack([in_loops(induction, *columns) for columns in zip(x, outcome, obs, strict=True)])
    assert torch.allclose(got, expected, atol=1e-5)
    parameters = list(induction.parameters())
    ours, theirs = (torch.autograd.grad((output * weight).sum(), parameters) for output in (got, expected))
    for mine, reference in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, reference, atol=1e-4) and mine.abs().max() > 1e-3


@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), num_obs=st.integers(1, 9))
@torch.no_grad()
def test_chunks_through_the_cache_equal_one_forward(lengths: list[int], num_obs: int) -> None:
    induction, cache = layer(), KVCache(*torch.zeros(2, 1, 2, HEADS, 30, HEAD_DIM), torch.zeros(1, 2, 1, 30, 1).long())
    columns = inputs(2, sum(lengths), num_obs)
    parts = zip(*(column.split(lengths, dim=1) for column in columns), strict=True)
    chunks = [induction(*part, cache) for part in parts]
    assert torch.allclose(torch.cat(chunks, dim=1), induction(*columns, None), atol=1e-5)


@pytest.mark.parametrize("dropout", ["attention_dropout", "residual_dropout"])
@torch.no_grad()
def test_dropout_acts_in_training_alone(dropout: str) -> None:
    induction, columns = layer(**{dropout: 0.5}), inputs(2, 6)
    assert torch.equal(induction(*columns, None), layer()(*columns, None))
    induction.train()
    assert not torch.allclose(induction(*columns, None), induction(*columns, None))


def silent_gpt(tokens: str) -> GPT:
    """A model whose one block adds nothing, so that only induction reads other steps."""
    model = GPT(replace(CONFIG, tokens=tokens, position="none", induction=True), SPEC)
    outspoken(model, 0.5)
    with torch.no_grad():
        block = model.transformer.blocks[0]
        for last in (block.attention.out, block.narrow):
            last.weight.zero_()
    return model.eval()


def window(obs: list[int]) -> dict[str, Tensor]:
    length, generator = len(obs), torch.Generator().manual_seed(1)
    return {
        "obs": torch.tensor([obs]),
        "action": torch.randint(SPEC.num_actions, (1, length), generator=generator),
        "reward": torch.zeros(1, length, dtype=torch.long),
        "timestep": torch.arange(length)[None] % SPEC.max_episode_steps,
    }


@pytest.mark.parametrize("tokens", ["transition", "interleaved", "cross"])
@torch.no_grad()
def test_the_outcome_of_an_earlier_visit_is_one_hop_away(tokens: str) -> None:
    """Action, reward and next observation of step 1 are read at later visits to its observation, and only there."""
    model, columns = silent_gpt(tokens), window([4, 7, 2, 4, 7, 9, 4, 7])
    for name, step, high in (("reward", 1, 2), ("action", 1, SPEC.num_actions), ("obs", 2, SPEC.num_obs)):
        changed = {key: column.clone() for key, column in columns.items()}
        changed[name][0, step] = (changed[name][0, step] + 1) % high
        before, after = (model(context_of(SPEC, **form)) for form in (columns, changed))
        moved = {t for t in range(8) if (after - before)[0, t].abs().max() > 1e-5}
        assert moved - {2, 3} == {4, 7}


@pytest.mark.parametrize("tokens", ["interleaved", "cross"])
@torch.no_grad()
def test_the_first_step_of_a_context_shows_no_visit(tokens: str) -> None:
    """The token for "no previous action" is found by no later step."""
    model, columns = silent_gpt(tokens), window([4, 4, 7, 4])
    before = model(context_of(SPEC, **columns))
    model.prev_action.weight[SPEC.num_actions] += torch.arange(WIDTH).cos()
    assert torch.allclose(model(context_of(SPEC, **columns)), before, atol=1e-6)
    model.prev_action.weight[columns["action"][0, 0]] += torch.arange(WIDTH).cos()
    assert (model(context_of(SPEC, **columns)) - before)[0, 3].abs().max() > 1e-4


def test_initial_weights_have_the_spread_of_gpt2() -> None:
    induction = Induction(replace(CONFIG, embed_dim=64))
    for linear in (induction.query, induction.key_value, induction.out):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert not linear.bias.any()
    assert induction.no_visit.std().item() == pytest.approx(0.02, rel=0.25)
    assert not induction.recency.any()
