"""Optimizers by name, and Muon against numbers worked by hand and loops over single numbers."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import INDUCTION
from torch import Tensor, nn
from toy import CONFIG as WHOLE
from toy import CPU, Naming, batch_at, dying, left_in, model_of, run

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.envs import make_env
from icrl.nn.gpt import GPT
from icrl.runs.distributed import Ranks
from icrl.training.optimizers import Muon, make_optimizer, orthogonal, rules
from icrl.training.updates import Updater

PRESETS = {name: load_config([f"optimizer={name}"]).optimizer for name in rules()}
START = Clock(0, 0, 0, 0)
every_optimizer = pytest.mark.parametrize("name", PRESETS)


@every_optimizer
def test_options_reach_their_optimizer_which_decays_matrices_and_leaves_out_frozen_parameters(name: str) -> None:
    model = nn.Sequential(nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model.register_parameter("loose", loose := nn.Parameter(torch.ones(2, 2)))
    table, norm, layer = model
    table.weight.requires_grad_(False)
    decay = 0.125 if hasattr(PRESETS[name], "weight_decay") else 0.0
    own = {"beta2": 0.9, "weight_decay": decay}
    own = {option: value for option, value in own.items() if hasattr(PRESETS[name], option)}
    optimizer = make_optimizer(model, replace(PRESETS[name], learning_rate=0.25, **own))
    constants = {"sgd": {"momentum": 0.9}, "lamb": {"eps": 1e-6}}.get(name, {"eps": 1e-8})
    assert optimizer.defaults | constants == optimizer.defaults
    assert "beta2" not in own or optimizer.defaults["betas"][:2] == (0.9, 0.9)
    decaying, other = optimizer.param_groups
    assert [id(parameter) for parameter in decaying["params"]] == [id(layer.weight)]
    others = (*norm.parameters(), layer.bias, loose)
    assert {id(parameter) for parameter in other["params"]} == {id(parameter) for parameter in others}
    assert (decaying["decays"], other["decays"]) == (True, False)
    rates = [(group["lr"], group["weight_decay"]) for group in (decaying, other)]
    assert rates == [(0.25, decay), (0.25, 0.0)]  # a run records these before its first update


@every_optimizer
def test_every_optimizer_learns(name: str) -> None:
    """Its preset, with a constant learning rate, learns the nine observations."""
    model = model_of(0, dropout=0.0)
    config = replace(PRESETS[name], learning_rate=3 * PRESETS[name].learning_rate["initial"])
    updater = Updater(model, Naming(), replace(WHOLE, optimizer=config), CPU, Ranks())
    found = [updater.update(batch_at(update), START) for update in range(200)]
    first, last = (sum(metrics["loss"].item() for metrics in some) / 10 for some in (found[:10], found[-10:]))
    assert last < first / 4
    assert found[-1]["accuracy"] == 1


@every_optimizer
def test_an_interrupted_run_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    config = replace(WHOLE, optimizer=replace(PRESETS[name], learning_rate=0.05))
    run(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "dead", config, batches=dying(7))
    run(tmp_path / "dead", config, model_of(99))
    assert left_in(tmp_path / "dead") == left_in(tmp_path / "whole")


RATE, BETAS, EPS = 0.1, (0.7, 0.9), 0.01
ADAM = {"lr": RATE, "betas": BETAS, "eps": EPS}


def random(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000), st.sampled_from([1e-5, 1.0, 1e5]))
def test_orthogonal_matrices_keep_singular_vectors(rows: int, columns: int, seed: int, scale: float) -> None:
    left, values, right = torch.linalg.svd(random(rows, columns, seed=seed), full_matrices=False)
    matrix = left @ torch.diag(values.clamp(min=values.max() / 20)) @ right  # five steps do not lift smaller values
    moved = left.mT @ orthogonal(scale * matrix[None])[0] @ right.mT
    assert torch.allclose(moved, torch.diag(moved.diagonal()), atol=1e-6)
    assert ((moved.diagonal() > 0.6) & (moved.diagonal() < 1.25)).all()


def test_muon_follows_its_equation() -> None:
    """Matrices joined in one parameter step like separate ones, those of one shape like those of several; without
    gradient, or with one of zeros, a parameter stays."""
    weights = [nn.Parameter(random(*shape, seed=seed)) for seed, shape in enumerate([(5, 2), (5, 2), (3, 6), (2, 2)])]
    expected = [list(weight.detach().clone().split([2, 3] if len(weight) == 5 else len(weight))) for weight in weights]
    groups = [
        {"params": weights[:2], "splits": (2, 3), "weight_decay": 0.5},
        {"params": weights[2:3], "splits": (3,)},
        {"params": weights[3:], "splits": (2,)},
    ]
    optimizer = Muon(groups, lr=RATE, momentum=0.8, betas=BETAS, eps=EPS)
    means = [[torch.zeros_like(part) for part in parts] for parts in expected]
    for step in range(3):
        for index, (weight, parts) in enumerate(zip(weights[:3], expected, strict=False)):
            weight.grad = random(*weight.shape, seed=10 * step + index)
            for k, gradient in enumerate(weight.grad.split([len(part) for part in parts])):
                means[index][k] = 0.8 * means[index][k] + 0.2 * gradient
                change = orthogonal((0.8 * means[index][k] + 0.2 * gradient)[None])[0]
                factor, decay = 0.2 * max(change.shape) ** 0.5, 0.5 if index < 2 else 0.0
                parts[k] = (1 - RATE * decay) * parts[k] - RATE * factor * change
        weights[3].grad = torch.zeros_like(weights[3]) if step else None
        optimizer.step()
    for weight, parts in zip(weights, expected, strict=True):
        assert torch.allclose(weight, torch.cat(parts), atol=1e-12)


def test_muon_steps_as_pytorch_and_its_other_parameters_as_adamw() -> None:
    own = [nn.Parameter(random(5, seed=0)), nn.Parameter(random(4, 3, seed=1))]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in own]
    groups = [{"params": own[:1]}, {"params": own[1:], "splits": (4,)}]
    optimizers = [
        Muon(groups, **ADAM, momentum=0.95, weight_decay=0.3),
        torch.optim.AdamW(theirs[:1], **ADAM, weight_decay=0.3),
        torch.optim.Muon(theirs[1:], lr=RATE, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"),
    ]
    for step in range(5):
        for one, other in zip(own, theirs, strict=True):
            one.grad = random(*one.shape, seed=step + 2)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(own[0], theirs[0], atol=1e-12)
    assert torch.allclose(own[1], theirs[1], atol=1e-2)  # PyTorch makes orthogonal in bfloat16


def test_muon_makes_no_step_with_infinite_scaled_gradients() -> None:
    weights = [nn.Parameter(random(4, 3, seed=0).float()), nn.Parameter(random(5, seed=1).float())]
    groups = [{"params": weights[:1], "splits": (2, 2)}, {"params": weights[1:]}]
    optimizer, scaler = Muon(groups, lr=RATE), torch.amp.GradScaler("cpu", init_scale=8.0)
    for factor, moves in ((1.0, True), (torch.inf, False), (1.0, True)):
        before = [weight.detach().clone() for weight in weights]
        optimizer.zero_grad()
        scaler.scale(sum(factor * weight.square().sum() for weight in weights)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(weights, 1.0)
        scaler.step(optimizer)
        scaler.update()
        for weight, old in zip(weights, before, strict=True):
            assert weight.isfinite().all() and torch.equal(weight, old) != moves
    assert scaler.get_scale() == 4.0


def test_muon_updates_the_matrices_of_blocks() -> None:
    config = replace(WHOLE.model, num_layers=2, num_kv_heads=1, num_heads=2, embed_dim=8, induction=INDUCTION[-1])
    model = GPT(config, make_env(WHOLE.env).spec)
    optimizer = make_optimizer(model, PRESETS["muon"])
    found = {id(parameter): group.get("splits") for group in optimizer.param_groups for parameter in group["params"]}
    splits = {name: found[id(parameter)] for name, parameter in model.named_parameters() if found[id(parameter)]}
    block = {"attention.qkv": (8, 4, 4), "attention.out": (8,), "widen": (config.ff_dim,), "narrow": (8,)}
    expected = {f"transformer.blocks.{i}.{name}.weight": rows for i in range(2) for name, rows in block.items()}
    lookups = {"query": (8,), "key_value": (8, 8), "out": (8,)} if config.induction else {}
    places = ("", "further.0.") if config.induction == 2 else ()
    expected |= {f"induction.{place}{name}.weight": rows for place in places for name, rows in lookups.items()}
    assert splits == expected | ({"induction.reached.0.weight": (8,)} if places else {})
