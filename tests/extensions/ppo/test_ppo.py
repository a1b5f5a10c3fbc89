"""Presets and refusals of PPO. Its updates are compared with plain PyTorch beside those of A2C."""

from pathlib import Path

import pytest
import torch
from refusals import check_refusal, refusals
from written_out import advantages_and_returns

from icrl.app.compose import load_config
from icrl.extensions.ppo.ppo import PPO, PPOConfig, gae
from icrl.sources import source_class
from icrl.sources.a2c import A2C


@pytest.mark.parametrize("preset", ["ppo", "ppo_vectors"])
def test_presets_choose_it(preset: str) -> None:
    assert isinstance(load_config([f"source={preset}"]).source, PPOConfig)
    assert source_class("ppo") is PPO and not issubclass(PPO, A2C)  # a change of A2C leaves it as it is


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_conflicts_are_refused_in_one_line(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)
    load_config(["source=ppo", "source.normalize_advantage=true", "source.num_envs=1", "source.mini_batch_length=1"])


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_advantages_equal_their_definition(discount: float, gae_lambda: float) -> None:
    """In streams whose episodes end and are truncated at different times."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 12, 20, generator=generator, dtype=torch.float64)
    ends = torch.rand(2, 12, 20, generator=generator) < 0.2
    expected, _ = advantages_and_returns(*values, *ends, discount, gae_lambda)
    found = gae(*values, *ends, discount, gae_lambda)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
