"""The objectives against their losses written out number by number."""

import math

import pytest
import torch
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, EnvSpec
from icrl.nn.gpt import Context, context_of
from icrl.objectives.ad import AlgorithmDistillation
from icrl.objectives.dpt import DecisionPretraining

CONFIG = load_config()
SPEC = EnvSpec(num_obs=9, num_actions=5, reward_values=(0.0, 1.0), width=3, max_episode_steps=6)
NUM_WINDOWS, LENGTH = 3, 4


class Fixed:
    """Stands for a model: gives the logits it was made with, and notes what it was shown."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.requires_grad_()

    def __call__(self, context: Context) -> Tensor:
        self.shown = context
        return self.logits


TARGETS = {AlgorithmDistillation: "action", DecisionPretraining: "optimal_action"}


def objective(
    label_smoothing: float, kind: type[AlgorithmDistillation] = AlgorithmDistillation
) -> AlgorithmDistillation:
    return kind(replace(CONFIG.objective, label_smoothing=label_smoothing), SPEC)


def example() -> tuple[Fixed, Batch]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(NUM_WINDOWS, LENGTH, SPEC.num_actions, generator=generator)
    highs = {"obs": SPEC.num_obs, "next_obs": SPEC.num_obs, "timestep": SPEC.max_episode_steps}
    highs |= {"reward": SPEC.num_rewards, "terminated": 2, "truncated": 2}
    highs |= dict.fromkeys(("action", "optimal_action"), SPEC.num_actions)
    columns = {name: torch.randint(high, (NUM_WINDOWS, LENGTH), generator=generator) for name, high in highs.items()}
    weight = torch.rand(NUM_WINDOWS, LENGTH, generator=generator) * 3
    return Fixed(logits), Batch(**columns, weight=weight, training_reward=torch.zeros(NUM_WINDOWS, LENGTH))


def by_hand(logits: list[float], action: int, smoothing: float) -> tuple[float, list[float]]:
    """Cross-entropy of one position, and its gradient: probabilities minus target."""
    total = sum(math.exp(x) for x in logits)
    probabilities = [math.exp(x) / total for x in logits]
    target = [smoothing / len(logits) + (1 - smoothing) * (i == action) for i in range(len(logits))]
    loss = -sum(t * math.log(p) for t, p in zip(target, probabilities, strict=True))
    return loss, [p - t for p, t in zip(probabilities, target, strict=True)]


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_loss_and_gradient_equal_those_by_hand_at_every_position(
    smoothing: float, kind: type[AlgorithmDistillation]
) -> None:
    model, batch = example()
    aim = objective(smoothing, kind)
    terms, metrics = aim(model, batch)
    assert aim.weights == {"imitation": 1.0} and terms.keys() == aim.weights.keys()
    loss = terms["imitation"]
    loss.backward()
    count = NUM_WINDOWS * LENGTH
    losses, nll, right = 0.0, 0.0, 0
    for b in range(NUM_WINDOWS):
        for t in range(LENGTH):
            logits, action = model.logits[b, t].tolist(), int(getattr(batch, TARGETS[kind])[b, t])
            one, gradient = by_hand(logits, action, smoothing)
            weight = float(batch.weight[b, t])
            losses += weight * one / count
            nll += by_hand(logits, action, 0.0)[0] / count
            right += max(range(SPEC.num_actions), key=logits.__getitem__) == action
            assert model.logits.grad[b, t].tolist() == pytest.approx([weight * g / count for g in gradient], abs=1e-6)
    assert loss.item() == pytest.approx(losses, abs=1e-6)
    assert metrics["nll"].item() == pytest.approx(nll, abs=1e-6)
    assert metrics["accuracy"].item() == pytest.approx(right / count)
    assert (model.logits.grad != 0).all()
    assert not metrics["nll"].requires_grad


@pytest.mark.parametrize("kind", TARGETS)
def test_the_model_is_shown_the_window_shifted(kind: type[AlgorithmDistillation]) -> None:
    """What the source did, also where something else is to be predicted."""
    model, batch = example()
    objective(0.0, kind)(model, batch)
    expected = context_of(SPEC, batch.obs, batch.action, batch.reward, batch.timestep)
    assert all(torch.equal(a, b) for a, b in zip(model.shown, expected, strict=True))
