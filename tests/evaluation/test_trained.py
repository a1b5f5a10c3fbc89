"""Names of changes of a world, and of the folders with results."""

import re

import pytest
import torch
from other_worlds import changed
from small_models import CONFIG as SMALL
from small_models import SPEC

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.evaluation.kinds import plain_gpt
from icrl.evaluation.trained import changes_of, suffix_of
from icrl.nn.gpt import GPT
from icrl.training.policy_gradient import BESIDE

CONFIG = load_config(["env.size=5"])


def test_changes_are_named_with_their_new_values() -> None:
    trained = CONFIG.model_dump()
    assert changes_of(CONFIG, trained) == {}
    assert changes_of(changed(CONFIG, size=7, terminate_on_goal=False), trained) == {
        "size": 7,
        "terminate_on_goal": False,
    }
    assert changes_of(changed(CONFIG, variant="other"), trained) == {}  # a label
    assert changes_of(changed(CONFIG, variant="other", size=7), trained) == {"variant": "other", "size": 7}
    with pytest.raises(ConfigError, match=r"env\.name=dark_room.*env\.name=street"):
        changes_of(CONFIG, trained | {"env": {"name": "street"}})


def test_suffixes_of_folders() -> None:
    changes = {"variant": "dark_room_classic", "terminate_on_goal": False, "deviation": 0.5}
    assert suffix_of(changes) == "-variant=dark_room_classic-terminate_on_goal=false-deviation=0.5"
    assert suffix_of({}) == "" and suffix_of({"size": 13}, "development") == "-development-size=13"
    one, other = (suffix_of({"tasks": [{"desc": ["SFFF", end]}]}) for end in ("FFFG", "FFGF"))
    assert one != other and all(re.fullmatch("-tasks=[0-9a-f]{8}", suffix) for suffix in (one, other))


def test_weights_beside_a_model_are_left_out_and_others_are_refused() -> None:
    weights, more = GPT(SMALL.model, SPEC).state_dict(), torch.zeros(1)
    model = plain_gpt(SMALL, SPEC, weights | {f"{BESIDE}.weight": more}, torch.device("cpu"))
    assert model.state_dict().keys() == weights.keys()
    for wrong, told in ((weights | {"more.weight": more}, "more.weight"), ([more], "must be a dict, not a list")):
        with pytest.raises(ConfigError, match=told):
            plain_gpt(SMALL, SPEC, wrong, torch.device("cpu"))
