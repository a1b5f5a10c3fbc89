"""Advantage-weighted regression against weights computed number by number, and its limits."""

import math

import legal_world
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from critics import CONFIG, SPEC, batch_of, config_of, critic_of, fresh_critic, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_world import LEGAL, Fixed, masks, restricted
from models import outspoken

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.nn.gpt import GPT, Window, context_of
from icrl.programs import pipeline


def objective(critic=None, **options) -> AdvantageWeightedRegression:
    config = replace(CONFIG.awr, **options)
    return AdvantageWeightedRegression(config, (critic or critic_of()).target)


@pytest.mark.parametrize("options", [("policy.model=awr",), ("policy.model=critic", "policy.advantage_scale=2")])
def test_a_pipeline_refuses_policies_that_it_does_not_train_before_any_work(tmp_path, options) -> None:
    config = load_config(["env=tiny_room", f"root={tmp_path}", *options])
    with pytest.raises(ConfigError, match=f"{options[0]} with .* needs icrl train-ilql.* run each stage by its own"):
        pipeline.main(config)
    assert not [*tmp_path.iterdir()]


def policy() -> GPT:
    return outspoken(GPT(CONFIG.model, SPEC))


@settings(max_examples=20)
@given(inverse=st.floats(0, 5), threshold=st.floats(0.2, 5), seed=st.integers(0, 99))
def test_loss_and_metrics_equal_loops_over_steps(inverse: float, threshold: float, seed: int) -> None:
    critic, batch, model = critic_of(), batch_of(seed=seed), policy().eval()
    awr = objective(critic, inverse_temperature=inverse, advantage_threshold=threshold)
    terms, metrics = awr(model, batch)
    advantages, nll, right = [], [], []
    with torch.no_grad():
        values, logits = critic.target(shown(batch)), model(shown(batch)).tolist()
    for row, t in np.ndindex(batch.action.shape):
        action, of_step = int(batch.action[row, t]), logits[row][t]
        advantages.append(min(values.q[:, row, t, action].tolist()) - float(values.value[row, t]))
        nll.append(math.log(sum(map(math.exp, of_step))) - of_step[action])
        right.append(of_step.index(max(of_step)) == action)
    free = np.exp(inverse * np.array(advantages))
    weights = np.minimum(free, threshold)
    assert terms.keys() == awr.weights.keys() == {"imitation"}
    assert terms["imitation"].item() == pytest.approx(np.mean(weights * nll), rel=1e-4)
    expected = {
        "nll": np.mean(nll),
        "accuracy": np.mean(right),
        "advantage": np.mean(advantages),
        "largest_weight": math.log(max(free)),
        "effective_samples": weights.sum() ** 2 / (weights**2).sum() / len(weights),
    }
    if (abs(free / threshold - 1) > 1e-5).all():  # no rounding decides
        expected["clipped"] = np.mean(free > threshold)
    for name, value in expected.items():
        assert metrics[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert not any(metric.requires_grad for metric in metrics.values())


@pytest.mark.parametrize("size", [1e4, 1e30, -1e4, -1e30])
def test_advantages_of_any_size_give_finite_losses_and_metrics(size: float) -> None:
    """In float32, also in mixed precision and if all weights are almost 0."""
    critic = critic_of()
    with torch.no_grad():
        for head in critic.target.q_heads:
            head[-1].bias.fill_(size)
    model = policy()
    with torch.autocast("cpu", torch.bfloat16):
        terms, metrics = objective(critic)(model, batch_of())
    assert {value.dtype for value in (*terms.values(), *metrics.values())} == {torch.float32}
    terms["imitation"].backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert terms["imitation"].isfinite() and gradient.isfinite().all()
    assert {name: bool(metric.isfinite()) for name, metric in metrics.items()} == dict.fromkeys(metrics, True)


def test_what_a_head_predicts_beside_actions_is_no_logit() -> None:
    batch, numbers = batch_of(), torch.randn(3, 7, SPEC.num_actions + 2)
    awr = objective()
    assert torch.equal(awr.logits(Fixed(numbers), batch), numbers[..., : SPEC.num_actions])
    losses = [awr(Fixed(one), batch)[0]["imitation"] for one in (numbers, numbers[..., : SPEC.num_actions])]
    assert torch.equal(*losses)


def test_no_gradient_reaches_the_critic_which_sees_no_dropout() -> None:
    critic = critic_of(encoder={"dropout": 0.5}, decoder={"dropout": 0.5})
    critic.target.train().requires_grad_(True)
    awr = objective(critic)
    assert not any(module.training for module in critic.target.modules())
    batch = batch_of()
    assert torch.equal(awr.advantage(batch), awr.advantage(batch))
    assert not awr.advantage(batch).requires_grad
    awr(policy().train(), batch)[0]["imitation"].backward()
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in critic.target.parameters())


@settings(max_examples=10)
@given(legal=masks, seed=st.integers(0, 99))
def test_losses_are_those_of_models_of_legal_actions(legal: list[list[bool]], seed: int) -> None:
    batch, cautious = legal_world.batch_of(legal, seed), config_of(critic={"conservative_scaling": 1.0})
    critic = outspoken(fresh_critic(cautious, LEGAL)).eval()
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * 9)
    awr = AdvantageWeightedRegression(CONFIG.awr, critic.target)
    terms, _ = awr(model, batch)
    terms["imitation"].backward()
    assert model.logits.grad.isfinite().all()
    weights = awr.log_weights(awr.advantage(batch).flatten())[0].exp()
    losses = torch.stack([F.cross_entropy(*restricted(model.logits.detach(), batch, t)) for t in range(4)])
    torch.testing.assert_close(terms["imitation"].detach(), (losses * weights).mean())
    learned, metrics = ImplicitQLearning(critic)(critic, batch)
    q = critic(context_of(Window.of(batch))).q.detach()
    losses = torch.stack([F.cross_entropy(*restricted(q[i], batch, t)) for i in range(2) for t in range(3)])
    torch.testing.assert_close(learned["conservative"].detach(), losses.mean())
    assert metrics["largest_q"] == q[:, 0, torch.tensor(legal)].abs().max()
    for one, acting in ((awr, model), (ImplicitQLearning(critic), critic)):
        assert torch.equal(one.logits(acting, batch)[0].isfinite(), torch.tensor(legal))
