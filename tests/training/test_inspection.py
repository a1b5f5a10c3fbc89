"""What summaries show of parameters and policies, against numbers worked out by hand."""

import math

import pytest
import torch

from icrl.training.inspection import action_distribution, parameters_and_gradients


def test_norms_and_values() -> None:
    """Of a parameter with a gradient, of one without, and of one of low precision, whose norm would overflow in it."""
    weight = torch.tensor([[3.0, 0.0], [0.0, -4.0]], requires_grad=True)
    (weight * torch.tensor([[1.0, 2.0], [2.0, 4.0]])).sum().backward()
    half = torch.full((4,), 40000.0, dtype=torch.float16)
    named = [("layer.weight", weight), ("table", torch.tensor([-2.0])), ("half", half)]
    norms, values = parameters_and_gradients(named)
    assert norms == {
        "value_norm/layer.weight": 5.0,
        "gradient_norm/layer.weight": 5.0,
        "value_norm/table": 2.0,
        "value_norm/half": 80000.0,
    }
    assert set(values) == {"value/layer.weight", "gradient/layer.weight", "value/table", "value/half"}
    assert torch.equal(values["gradient/layer.weight"], torch.tensor([[1.0, 2.0], [2.0, 4.0]]))
    assert torch.equal(values["value/layer.weight"], weight) and not values["value/layer.weight"].requires_grad


def test_nothing_to_show() -> None:
    assert parameters_and_gradients([]) == ({}, {})


def test_action_distribution() -> None:
    """Uniform over two of three actions, and certain of one: entropies log 2 and 0, where 0 log 0 is 0."""
    probabilities = torch.tensor([[[0.5, 0.5, 0.0]], [[0.0, 0.0, 1.0]]])  # [T, B, A]
    means, histograms = action_distribution(probabilities)
    assert means == pytest.approx(
        {"probability_0": 0.25, "probability_1": 0.25, "probability_2": 0.5, "entropy": math.log(2) / 2}
    )
    assert histograms.tolist() == pytest.approx([math.log(2), 0.0])
