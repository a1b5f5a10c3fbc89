"""One gradient update: precision, parts, clipping, schedules, recomputation, and gradients of single terms."""

import copy
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from installed import INDUCTION
from torch import Tensor, nn
from toy import CONFIG, CPU, Naming, assert_same, batch_at, config_of, dying, model_of, run, values_of

from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import Batch
from icrl.nn.gpt import GPT
from icrl.objectives.imitation import AlgorithmDistillation
from icrl.runs.distributed import Ranks
from icrl.spaces import discrete_spec
from icrl.training.optimizers import rules
from icrl.training.updates import Updater

START = Clock(0, 0, 0, 0)
FLOAT16 = {"amp_dtype": "float16"}
SPEC = discrete_spec(num_obs=9, num_actions=3, reward_values=(0.0, 1.0), width=3, max_episode_steps=5)


def updater_of(model: nn.Module, after_step: Any = None, **changes: dict[str, Any]) -> Updater:
    return Updater(model, Naming(), config_of(**changes), CPU, Ranks(), after_step)


OPTIMIZERS = [{"optimizer": {"name": name}} for name, rule in rules().items() if rule.step]  # that step otherwise


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def flat_gradient(model: nn.Module) -> Tensor:
    return flat(parameter.grad for parameter in model.parameters())


@pytest.mark.parametrize(("parts", "size"), [(2, 7), (8, 8)])
def test_accumulation_equals_one_batch(parts: int, size: int) -> None:
    """Also where parts differ in size, as those of trials do."""
    whole, dealt, seen = model_of(0, dropout=0.0), model_of(0, dropout=0.0), []
    dealt.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    batch = Batch(*(column[:size] for column in batch_at(0)))
    one = updater_of(whole).update(batch, START)
    several = updater_of(dealt, trainer={"gradient_accumulation_steps": parts}).update(batch, START)
    assert one.keys() == several.keys() == {"loss", "accuracy", "gradient_norm"}
    for name, value in one.items():
        assert several[name] == pytest.approx(value.item(), rel=1e-5), name
    torch.testing.assert_close(flat_gradient(dealt), flat_gradient(whole), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(flat(dealt.parameters()), flat(whole.parameters()), rtol=1e-4, atol=1e-5)
    assert [shape[0] for shape in seen] == [len(part) for part in batch.obs.chunk(parts)]


@pytest.mark.parametrize("amp_dtype", ["none", "bfloat16", "float16"])
def test_matrix_products_are_in_the_precision_asked_for(amp_dtype: str) -> None:
    """Parameters, gradients and loss stay in float32; the result is near that of full precision."""
    full, mixed, seen = model_of(0, dropout=0.0), model_of(0, dropout=0.0), []
    for layer in (mixed[1], mixed[4]):
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    one = updater_of(full).update(batch_at(0), START)
    other = updater_of(mixed, device={"amp_dtype": amp_dtype}).update(batch_at(0), START)
    assert seen == [torch.float32 if amp_dtype == "none" else getattr(torch, amp_dtype)] * 2
    tensors = [*mixed.parameters(), *(parameter.grad for parameter in mixed.parameters()), other["loss"]]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    assert other["loss"].item() == pytest.approx(one["loss"].item(), rel=1e-2)
    assert other["gradient_norm"].item() == pytest.approx(one["gradient_norm"].item(), rel=2e-2)  # unscaled
    torch.testing.assert_close(flat_gradient(mixed), flat_gradient(full), rtol=0.1, atol=1e-2)


@pytest.mark.parametrize(("gain", "expected"), [(3.0, "bfloat16"), (1.2, "none")])
def test_auto_is_bfloat16_where_it_is_faster_for_imitation_alone(
    monkeypatch, capsys, gain: float, expected: str
) -> None:
    """A resumed run keeps its precision, whatever is measured then."""
    monkeypatch.setattr("icrl.training.updates.bfloat16_gain", lambda device: gain)
    config = config_of(device={"amp_dtype": "auto"})
    imitation = AlgorithmDistillation(config.objective, SPEC)
    updater = Updater(model_of(0), imitation, config, CPU, Ranks())
    assert updater.state_dict()["precision"] == expected
    said = f"device.amp_dtype=auto: {expected}, because bfloat16 is {gain:.1f} times as fast as float32 here"
    assert said in capsys.readouterr().out
    assert updater_of(model_of(0), device={"amp_dtype": "auto"}).state_dict()["precision"] == "none"
    monkeypatch.setattr("icrl.training.updates.bfloat16_gain", lambda device: 4.2 - gain)
    resumed = Updater(model_of(0), imitation, config, CPU, Ranks())
    resumed.load_state_dict(updater.state_dict())
    assert resumed.state_dict()["precision"] == expected


def test_an_infinite_gradient_is_skipped_and_the_loss_scale_shrinks() -> None:
    model = model_of(0)
    updater = updater_of(model, device=FLOAT16)
    updater.scaler.set_growth_interval(2)
    updater.update(batch_at(0), START)
    before, scale = flat(model.parameters()), updater.rates()["loss_scale"]
    state = copy.deepcopy(updater.optimizer.state_dict()["state"])
    spoil = model[4].weight.register_hook(lambda gradient: gradient * torch.inf)
    metrics = updater.update(batch_at(1), START)
    assert not metrics["gradient_norm"].isfinite() and updater.watched(metrics)["gradient_norm"] == 0
    assert torch.equal(flat(model.parameters()), before)
    assert_same(updater.optimizer.state_dict()["state"], state)
    assert updater.rates()["loss_scale"] == scale / 2
    spoil.remove()
    updater.update(batch_at(1), START)
    assert not torch.equal(flat(model.parameters()), before)
    updater.update(batch_at(2), START)
    assert updater.rates()["loss_scale"] == scale  # grown again
    updater.scaler.update(8.0)
    fresh = updater_of(model_of(0), device=FLOAT16)
    fresh.load_state_dict(updater.state_dict())
    assert fresh.rates() == {"learning_rate": 0.05, "loss_scale": 8.0}
    updater.scaler.update(1e-6)
    assert not updater.watched(metrics)["gradient_norm"].isfinite()


@pytest.mark.parametrize("changes", [{}, {"device": FLOAT16}, *OPTIMIZERS], ids=str)
def test_after_step_is_called_once_after_each_step_that_was_made(changes: dict[str, Any]) -> None:
    model = model_of(0)
    seen = list[Tensor]()
    updater = updater_of(model, lambda: seen.append(flat(model.parameters())), **changes)
    for update, spoiled in enumerate((False, True, True, False, False)):
        before, number = flat(model.parameters()), len(seen)
        factor = torch.inf if spoiled and "device" in changes else 1.0
        spoil = model[4].weight.register_hook(lambda gradient, factor=factor: gradient * factor)
        updater.update(batch_at(update), START)
        spoil.remove()
        now = flat(model.parameters())
        assert len(seen) - number == int(not torch.equal(now, before)), update
        assert len(seen) == number or torch.equal(seen[-1], now)
    assert len(seen) == (3 if "device" in changes else 5)


def test_rates_follow_their_schedules(tmp_path: Path) -> None:
    """In 8 updates: a line, steps, and an exponential in updates."""
    halving = {"kind": "exponential", "progress": "iterations", "initial": 0.01, "rate": 0.5, "time": 1}
    steps = {"kind": "step", "progress": "updates", "points": [[2, 0.5], [6, 0.25], [8, 0.125]]}
    line = {"kind": "linear", "progress": "percent", "points": [[0, 0.08], [1, 0]]}
    config = config_of(
        trainer={"num_iterations": 8, "evaluate": False},
        optimizer={"learning_rate": line, "weight_decay": steps, "max_gradient_norm": halving},
    )
    model, rates = model_of(0), [0.08 * (1 - update / 8) for update in range(8)]
    updater = Updater(model, Naming(), config, CPU, Ranks())
    for update, rate in enumerate(rates):
        updater.update(batch_at(update), Clock(update / 8, update, 0, update))
        decay = 0.5 if update < 2 else 0.25 if update < 6 else 0.125
        groups = [(group["lr"], group["weight_decay"]) for group in updater.optimizer.param_groups]
        assert groups == [pytest.approx((rate, decay)), pytest.approx((rate, 0.0))]
        assert flat_gradient(model).norm().item() == pytest.approx(0.01 * 0.5**update, rel=1e-2)  # all are clipped
    run(tmp_path, config)
    assert values_of(tmp_path, "train/learning_rate") == pytest.approx(rates)


def test_a_compiled_model_learns_the_same_and_keeps_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured by torch.compile and then run as it is: a C++ compiler takes half a minute."""
    ran = list[int]()
    count = partial(torch.compile, backend=lambda graph, _: lambda *inputs: ran.append(1) or graph(*inputs))
    monkeypatch.setattr(torch, "compile", compiled := Mock(side_effect=count))
    config = config_of(trainer={"num_iterations": 3, "evaluate": False})
    plain = run(tmp_path / "plain", config)
    assert not compiled.called
    fast = replace(config, trainer=replace(config.trainer, compile=True))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "fast", fast, batches=dying(2))
    model = run(tmp_path / "fast", replace(fast, checkpoints=replace(fast.checkpoints, checkpoint_interval=1)))
    assert compiled.call_args.args == (model,) and len(ran) == 5
    assert model.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(flat(model.parameters()), flat(plain.parameters()))


def gpt_of(*, recompute: bool, **form: Any) -> GPT:
    torch.manual_seed(0)
    sizes = {"context_len": 5, "embed_dim": 16, "num_layers": 3, "num_heads": 2, "ff_dim": 64}
    dropout = {"residual_dropout": 0.3, "attention_dropout": 0.3, "embedding_dropout": 0.3}
    return GPT(replace(CONFIG.model, **sizes, **dropout, **form), SPEC, recompute)


def learned(model: GPT, changes: dict[str, Any]) -> tuple[Tensor, Tensor, int]:
    """Loss, gradient and bytes kept for the gradient, with dropout."""
    updater = Updater(model, AlgorithmDistillation(CONFIG.objective, SPEC), config_of(**changes), CPU, Ranks())
    torch.manual_seed(1)
    kept = list[Tensor]()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        metrics = updater.update(batch_at(0), START)
    return metrics["loss"], flat_gradient(model), sum(tensor.nbytes for tensor in kept)


RECOMPUTED = {"device": {"amp_dtype": "bfloat16"}, "trainer": {"gradient_accumulation_steps": 4}}
FORMS = [
    ({}, {"tokens": "transition", "induction": min(1, INDUCTION[-1])}),  # a layer that is not recomputed
    (RECOMPUTED, {"tokens": "interleaved"}),
    *((changes, {"tokens": "cross", "obs_encoding": "framed"}) for changes in ({}, *OPTIMIZERS)),
]


@pytest.mark.parametrize(("changes", "form"), FORMS, ids=str)
def test_activation_checkpointing_gives_the_same_gradient_from_less_memory(
    changes: dict[str, Any], form: dict[str, Any]
) -> None:
    loss, gradient, kept = learned(gpt_of(recompute=False, **form), changes)
    again, same, less = learned(gpt_of(recompute=True, **form), changes)
    assert torch.equal(again, loss) and torch.equal(same, gradient)
    assert 0 < less < kept / 3
