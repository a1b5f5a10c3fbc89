"""The head of Discrete actions against torch's distribution and frequencies of its samples; what has no head."""

import pytest
import torch
from gymnasium.spaces import Box, Discrete, Space
from torch.distributions import Categorical as Reference

from icrl.contracts import ConfigError
from icrl.nn import encoders, heads
from icrl.nn.gpt import GPTConfig, check_spaces
from icrl.nn.heads import Categorical, make_head
from icrl.sources import heads as of_sources
from icrl.sources import source_class
from icrl.sources.a2c import A2CConfig
from icrl.spaces import EnvSpec

NUMBER = 40_000


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, 5, generator=torch.Generator().manual_seed(0))


def test_log_probabilities_and_entropies_equal_torch() -> None:
    head, action = Categorical(5), torch.randint(5, (7, 3))
    reference = Reference(logits=logits(7, 3))
    torch.testing.assert_close(head.log_prob(logits(7, 3), action), reference.log_prob(action))
    torch.testing.assert_close(head.entropy(logits(7, 3)), reference.entropy())
    half = logits(7, 3).bfloat16()  # which has too few digits for results
    torch.testing.assert_close(head.log_prob(half, action), head.log_prob(half.float(), action))
    torch.testing.assert_close(head.entropy(half), head.entropy(half.float()))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_frequencies_are_those_of_the_logits_and_the_mode_is_the_most_probable(temperature: float) -> None:
    head, parameters, noise = Categorical(5), logits().bfloat16(), torch.arange(NUMBER)[:, None] / NUMBER
    drawn = head.sample(parameters.expand(NUMBER, -1), noise, temperature)
    expected = (parameters.float() / temperature).softmax(-1)
    torch.testing.assert_close(drawn.bincount(minlength=5) / NUMBER, expected, atol=1e-3, rtol=0)
    assert head.mode(parameters) == expected.argmax()


def test_a_density_of_discrete_actions_is_refused() -> None:
    told = r"model\.head=binned is for actions in a Box, not in Discrete\(3\): must be auto"
    with pytest.raises(ConfigError, match=told):
        make_head(GPTConfig(head="binned"), EnvSpec(Discrete(4), Discrete(3), (), 0, 5))


@pytest.mark.parametrize(("obs", "action"), [(Box(-1, 1, (2,)), Discrete(3)), (Discrete(3), Box(-1, 1, (2,)))])
def test_other_spaces_are_refused_without_the_extension_that_has_them(
    obs: Space, action: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, by the agents of stage one and by the model."""
    for module, name in ((heads, "head_for"), (encoders, "encoder_for"), (of_sources, "heads_for")):
        monkeypatch.setattr(getattr(module, name), "_classes", [])
    spec = EnvSpec(obs, action, (), 0, 5)
    told = r"^there is no .* for observations in .* and actions in .*: it belongs to an extension that is not"
    with pytest.raises(ConfigError, match=told):
        check_spaces(GPTConfig(), spec)
    with pytest.raises(ConfigError, match=told):
        source_class("a2c").heads_of(A2CConfig(), spec)
