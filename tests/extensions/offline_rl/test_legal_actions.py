"""Legal actions in the objectives of offline RL."""

import pytest
import torch
import torch.nn.functional as F
from critics import CONFIG, config_of, fresh_critic
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_world import LEGAL, MASKS, Fixed, batch_of, context_in, masks, restricted
from models import outspoken

from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.critic import Critic
from icrl.extensions.offline_rl.ilql import ImplicitQLearning


def critic_of(**critic) -> Critic:
    config = config_of(critic=critic, encoder={"dropout": 0.0}, decoder={"dropout": 0.0})
    return outspoken(fresh_critic(config, LEGAL)).train()


@settings(max_examples=10, deadline=None)
@given(legal=masks, seed=st.integers(0, 99))
def test_other_imitation_equals_that_of_a_model_of_legal_actions(legal: list[list[bool]], seed: int) -> None:
    """Advantage-weighted regression, and imitation beside values."""
    batch, critic = batch_of(legal, seed), critic_of(imitation_scaling=1.0)
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * 9)
    awr = AdvantageWeightedRegression(CONFIG.awr, critic_of().target)
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


def test_no_objective_gives_an_illegal_action_a_probability() -> None:
    batch, critic, plain, legal = batch_of(MASKS), critic_of(), torch.randn(1, 5, 3), torch.tensor(MASKS)
    for one, model, unmasked in (
        (AdvantageWeightedRegression(CONFIG.awr, critic.target), Fixed(plain), plain),
        (ImplicitQLearning(critic), critic, critic(context_in(batch)).least_q),
    ):
        logits = one.logits(model, batch)[0]
        assert torch.equal(logits.softmax(-1) > 0, legal)
        assert torch.equal(logits[legal], unmasked[0][legal])
