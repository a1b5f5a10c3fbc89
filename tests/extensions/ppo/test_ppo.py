"""Presets and refusals of PPO. Its updates are compared with plain PyTorch beside those of A2C."""

from pathlib import Path

import pytest
from refusals import check_refusal, refusals

from icrl.app.compose import load_config
from icrl.extensions.ppo.ppo import PPO, PPOConfig
from icrl.sources import source_class
from icrl.sources.a2c import A2C


@pytest.mark.parametrize("preset", ["ppo", "ppo_vectors"])
def test_presets_choose_it(preset: str) -> None:
    assert isinstance(load_config([f"source={preset}"]).source, PPOConfig)
    assert source_class("ppo") is PPO and not issubclass(PPO, A2C)  # a change of A2C leaves it as it is


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_conflicts_are_refused_in_one_line(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)
