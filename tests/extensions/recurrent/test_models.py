"""Models with recurrent layers: their cache, what they read, their needs, their parameters, refused options."""

import itertools
from pathlib import Path

import pytest
import torch
from continued import check_continues
from harness import done
from installed import INDUCTION
from models import outspoken
from policies import assert_slow_past_full_contexts, assert_steps_equal_one_forward
from refusals import check_refusal, refusals
from space_worlds import HORIZON, WORLDS, window_of
from torch import Tensor

from icrl import extensions
from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.envs import make_env
from icrl.nn.gpt import GPT, Window, context_of
from icrl.runs.files import read_json
from icrl.spaces import EnvSpec, discrete_spec
from icrl.training.optimizers import make_optimizer

SPEC = discrete_spec(9, 4, (-1.0, 0.0, 2.0), 3, HORIZON)
LENGTH, CPU = 12, torch.device("cpu")
SIZES = {"context_len": LENGTH, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "ff_dim": 32}
CONFIG = replace(load_config().model, obs_encoding="coordinates", **SIZES)
ROOM = replace(load_config().env, size=4, max_episode_steps=6, random_start=True)
FORMS = [
    {"tokens": "transition", "position": "env_time"},
    {"tokens": "interleaved", "position": "learned"},
    {"tokens": "interleaved", "position": "env_time", "induction": INDUCTION[-1]},
]
every_trunk = pytest.mark.parametrize("trunk", ["delta", "gru"])
OTHERS = [(FORMS[0], spec) for spec in WORLDS.values()] if "vectors" in extensions.NAMES else []
every_form = pytest.mark.parametrize(("form", "spec"), [*((form, SPEC) for form in FORMS), *OTHERS])


def gpt(spec: EnvSpec, **form) -> GPT:
    return outspoken(GPT(replace(CONFIG, **form), spec)).eval()


@every_trunk
@every_form
def test_steps_through_the_cache_equal_one_forward(form: dict, spec: EnvSpec, trunk: str) -> None:
    context = context_of(window_of(spec, 3, LENGTH))
    assert_steps_equal_one_forward(gpt(spec, trunk=trunk, **form), context, atol=1e-4)


@every_trunk
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_logits_see_the_past_and_nothing_else(form: dict, trunk: str) -> None:
    """A state forgets: little moves it after many tokens, which float64 shows."""
    model = gpt(SPEC, trunk=trunk, **form).double()
    window, other = (window_of(SPEC, 20, LENGTH, seed) for seed in (0, 1))

    @torch.no_grad()
    def logits(steps: Window) -> Tensor:
        return model(context_of(steps))

    for name, t in itertools.product(("obs", "action", "reward"), (0, 4, LENGTH - 2)):
        column = getattr(window, name).clone()
        column[:, t] = getattr(other, name)[:, t]
        moved = (logits(window._replace(**{name: column})) - logits(window)).abs().amax((0, 2))
        first = t if name == "obs" else t + 1
        assert (moved[:first] < 1e-6).all() and (moved[first:] > 1e-12).all()


@every_trunk
@pytest.mark.parametrize("tokens", ["transition", "interleaved"])
def test_logits_equal_the_slow_reference_past_full_contexts(tokens: str, trunk: str) -> None:
    assert_slow_past_full_contexts(make_env(ROOM), tokens=tokens, trunk=trunk)


@every_trunk
@pytest.mark.parametrize("induction", INDUCTION)
def test_recomputed_blocks_give_the_same_gradient(induction: bool, trunk: str) -> None:
    plain = gpt(SPEC, trunk=trunk, induction=induction, residual_dropout=0.2, embedding_dropout=0.2).train()
    again = GPT(plain.config, SPEC, recompute=True)
    again.load_state_dict(plain.state_dict())
    gradients = []
    for model in (plain, again.train()):
        torch.manual_seed(0)
        model(context_of(window_of(SPEC, 3, LENGTH))).square().mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert torch.equal(*gradients) and (gradients[0] != 0).any()


@every_trunk
def test_muon_updates_the_matrices_of_recurrent_layers_and_weight_decay_applies_to_them(trunk: str) -> None:
    config = replace(CONFIG, num_layers=1, embed_dim=8, trunk=trunk)
    model = GPT(config, SPEC)
    groups = make_optimizer(model, load_config(["optimizer=muon"]).optimizer).param_groups
    found = {id(parameter): group for group in groups for parameter in group["params"]}
    splits = {name: found[id(p)]["splits"] for name, p in model.named_parameters() if found[id(p)]["splits"]}
    inputs = {"gru.weight_ih_l0": (8, 8, 8), "gru.weight_hh_l0": (8, 8, 8)}
    layer = (inputs if trunk == "gru" else {"inputs.weight": (8, 8, 8, 8, 2, 2)}) | {"out.weight": (8,)}
    block = {"widen.weight": (config.ff_dim,), "narrow.weight": (8,)} | {f"attention.{k}": v for k, v in layer.items()}
    assert splits == {f"transformer.blocks.0.{name}": rows for name, rows in block.items()}
    assert all(group["decays"] for group in groups if group["splits"])


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


# ---- stages two and three with a recurrent trunk: a killed run


@pytest.mark.parametrize("trunk", [pytest.param("delta", marks=pytest.mark.long), "gru"])
def test_a_continued_run_ends_with_the_same_bits_and_its_model_acts(root: Path, trunk: str) -> None:
    options = ("name=recurrent", "histories=tiny", "run=recurrent", f"model.trunk={trunk}", "optimizer=muon")
    check_continues("train_gpt", root, "logs/recurrent/gpt", *options)
    ablated = trunk == "delta"
    short = ("evaluation.temperatures=[]", "evaluation.moved_goal=false", f"evaluation.ablations={ablated}".lower())
    done("evaluate", root, *options, *short)
    found = read_json(root / "logs/recurrent/evaluation/results.json")
    assert set(found["ablations"]) == ({"blank", "shuffled", "wiped", "other_task"} if ablated else set())


def test_trials_start_from_random_weights(root: Path) -> None:
    """With a GRU this is RL^2."""
    scratch = ("finetune.start=none", "finetune.trial_steps=8", "model.trunk=gru")
    small = ("finetune.num_iterations=2", "finetune.num_mini_batches=3")
    done("finetune", root, *scratch, *small, "name=recurrent", "run=recurrent", "histories=tiny")
    assert (root / "logs/recurrent/finetuned/finished.json").exists()
