"""Rows of tables of many learners, against a scalar loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icrl.sources.rows import LearnerRows


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_each_learner_has_rows_of_its_own(num_learners: int, num_obs: int, num_envs: int, num_steps: int) -> None:
    obs = torch.randint(num_obs, (num_steps, num_learners * num_envs))
    rows = LearnerRows(num_learners, num_obs, torch.device("cpu")).of(obs)
    for step in range(num_steps):
        for stream in range(num_learners * num_envs):
            assert rows[step, stream] == stream // num_envs * num_obs + obs[step, stream]


@pytest.mark.parametrize("num_streams", [1, 2, 4, 5])
def test_streams_that_cannot_be_dealt_out_evenly_are_refused(num_streams: int) -> None:
    rows = LearnerRows(3, 7, torch.device("cpu"))
    with pytest.raises(ValueError, match=f"{num_streams} streams .* 3 learners"):
        rows.of(torch.zeros(num_streams, dtype=torch.long))
