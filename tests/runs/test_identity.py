"""Whose a file is: the same run wherever it is and whatever it is called, another one for all that changes results."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.config.compose import load_config
from icrl.contracts import PipelineError
from icrl.runs.files import Identity, check_owner, identity_of, read_owned, write_owned

GROUPS = ("seed", "model", "trainer", "checkpoints", "optimizer")
SAME = ["name=other", "root=elsewhere", "num_threads=2", "checkpoints.keep_last=9", "env.size=7", "histories=[a,b]"]
OTHER = ["seed=1", "model.embed_dim=64", "trainer.num_iterations=7", "optimizer.learning_rate=0.5"]
INPUTS = {"histories": ["abc"], "critic": "def"}


def identity(options: list[str], inputs: Any = None) -> Identity:
    return identity_of("train_gpt", load_config(["experiment=tiny", *options]), GROUPS, inputs or INPUTS)


@settings(deadline=None, max_examples=8)
@given(same=st.sets(st.sampled_from(SAME)), other=st.sets(st.sampled_from(OTHER)))
def test_a_run_is_what_decides_what_it_computes(same: set[str], other: set[str]) -> None:
    assert (identity([*sorted(same), *sorted(other)]) == identity([])) == (not other)


def test_program_and_inputs_count_too() -> None:
    config = load_config(["experiment=tiny"])
    found = {
        identity_of("train_gpt", config, GROUPS, INPUTS).run,
        identity_of("extract_policy", config, GROUPS, INPUTS).run,
        identity_of("train_gpt", config, GROUPS).run,
        identity_of("train_gpt", config, GROUPS, INPUTS | {"histories": ["abd"]}).run,
        identity_of("train_gpt", config, GROUPS, INPUTS | {"histories": ["abc", "abc"]}).run,
    }
    assert len(found) == 5


def test_a_file_says_whose_it_is_and_is_refused_elsewhere(tmp_path: Path) -> None:
    path, owner, other = tmp_path / "file.json", Identity("train_gpt", "a" * 64), Identity("train_ilql", "b" * 64)
    write_owned(path, owner, 7, {"found": [1.5]})
    assert read_owned(path, {"found": [float]}) == ({"found": [1.5]}, owner, 7)
    check_owner(path, owner, Identity(*owner))
    said = f"{path} is from train_gpt (run aaaaaaaaaaaa), but train_ilql (run bbbbbbbbbbbb) is needed here: "
    with pytest.raises(PipelineError, match=re.escape(said)):
        check_owner(path, owner, other)
    with pytest.raises(PipelineError, match="has unexpected content"):
        read_owned(path, {"found": [str]})
