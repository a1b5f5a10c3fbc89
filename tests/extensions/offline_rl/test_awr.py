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
from legal_world import LEGAL, Fixed, context_in, masks, restricted
from models import outspoken
from torch import Tensor

from icrl.config.options import replace
from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.critic import Critic
from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.nn.gpt import GPT

NORMALIZE = ("none", "mean", "softmax")


def objective(critic=None, **options) -> AdvantageWeightedRegression:
    config = replace(CONFIG.awr, **options)
    return AdvantageWeightedRegression(config, (critic or critic_of()).target)


def policy() -> GPT:
    return outspoken(GPT(CONFIG.model, SPEC))


def flat_gradient(model: GPT) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def expected_weights(advantages: list[float], inverse: float, threshold: float, normalize: str) -> np.ndarray:
    """Weights by their definition; small advantages do not overflow."""
    raised = np.exp(inverse * np.array(advantages))
    clipped = np.minimum(raised / raised.mean() if normalize == "softmax" else raised, threshold)
    return clipped / clipped.mean() if normalize == "mean" else clipped


@pytest.mark.parametrize("normalize", NORMALIZE)
@settings(max_examples=12, deadline=None)
@given(inverse=st.floats(0, 5), threshold=st.floats(0.2, 5), seed=st.integers(0, 99))
def test_loss_and_metrics_equal_loops_over_steps(normalize: str, inverse: float, threshold: float, seed: int) -> None:
    critic, batch, model = critic_of(), batch_of(seed=seed), policy().eval()
    given = (
        {"temperature": 1 / inverse, "inverse_temperature": None} if inverse > 1 else {"inverse_temperature": inverse}
    )
    awr = objective(critic, **given, advantage_threshold=threshold, normalize=normalize)
    terms, metrics = awr(model, batch)
    advantages, nll, right = [], [], []
    with torch.no_grad():
        values, logits = critic.target(shown(batch)), model(shown(batch)).tolist()
    for row, t in np.ndindex(batch.action.shape):
        action, of_step = int(batch.action[row, t]), logits[row][t]
        advantages.append(min(values.q[:, row, t, action].tolist()) - float(values.value[row, t]))
        nll.append(math.log(sum(map(math.exp, of_step))) - of_step[action])
        right.append(of_step.index(max(of_step)) == action)
    weights = expected_weights(advantages, inverse, threshold, normalize)
    free = expected_weights(advantages, inverse, math.inf, "softmax" if normalize == "softmax" else "none")
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


@pytest.mark.parametrize("normalize", NORMALIZE)
@pytest.mark.parametrize("size", [1e4, 1e8, 1e30, -1e4, -1e30])
def test_advantages_of_any_size_give_finite_losses_and_metrics(normalize: str, size: float) -> None:
    """In float32, also in mixed precision and if all weights are almost 0."""
    critic = critic_of()
    with torch.no_grad():
        for head in critic.target.q_heads:
            head[-1].bias.fill_(size)
    model = policy()
    with torch.autocast("cpu", torch.bfloat16):
        terms, metrics = objective(critic, inverse_temperature=10.0, normalize=normalize)(model, batch_of())
    assert {value.dtype for value in (*terms.values(), *metrics.values())} == {torch.float32}
    terms["imitation"].backward()
    assert terms["imitation"].isfinite() and flat_gradient(model).isfinite().all()
    assert {name: bool(metric.isfinite()) for name, metric in metrics.items()} == dict.fromkeys(metrics, True)


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


# ---- legal actions in the objectives of offline RL


def legal_critic(**critic) -> Critic:
    config = config_of(critic=critic, encoder={"dropout": 0.0}, decoder={"dropout": 0.0})
    return outspoken(fresh_critic(config, LEGAL)).train()


@settings(max_examples=10, deadline=None)
@given(legal=masks, seed=st.integers(0, 99))
def test_other_imitation_equals_that_of_a_model_of_legal_actions(legal: list[list[bool]], seed: int) -> None:
    """Advantage-weighted regression, and imitation beside values."""
    batch, critic = legal_world.batch_of(legal, seed), legal_critic(imitation_scaling=1.0)
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * 9)
    awr = AdvantageWeightedRegression(CONFIG.awr, legal_critic().target)
    terms, _ = awr(model, batch)
    terms["imitation"].backward()
    assert model.logits.grad.isfinite().all()
    weights = awr.log_weights(awr.advantage(batch).flatten())[0].exp()
    losses = torch.stack([F.cross_entropy(*restricted(model.logits.detach(), batch, t)) for t in range(4)])
    torch.testing.assert_close(terms["imitation"].detach(), (losses * weights).mean())
    terms, _ = ImplicitQLearning(critic)(critic, batch)
    terms["imitation"].backward()
    logits = critic(context_in(batch)).logits.detach()
    expected = sum(F.cross_entropy(*restricted(logits, batch, t)).item() for t in range(4)) / 4
    assert terms["imitation"].item() == pytest.approx(expected, rel=1e-4)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in critic.parameters())
    for one, acting in ((awr, model), (ImplicitQLearning(critic), critic)):
        assert torch.equal(one.logits(acting, batch)[0].isfinite(), torch.tensor(legal))
