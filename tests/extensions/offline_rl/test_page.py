"""The page of offline RL: its example runs."""

from argparse import Namespace

import numpy as np
import pytest
from pages import run_blocks

from icrl.config.paths import PROJECT


def test_the_reward_plug_in_of_the_page_pays_new_cells_once() -> None:
    found = run_blocks("docs/offline_rl.md", PROJECT, pytest.MonkeyPatch())
    columns = {"episode": [0, 0, 0, 1], "next_obs": [3, 4, 3, 3], "reward": [0.0, 0.0, 1.0, 0.0]}
    paid = found["get_reward"](Namespace(**{name: np.array(column) for name, column in columns.items()}))
    np.testing.assert_allclose(paid, [0.1, 0.1, 1.0, 0.1])
