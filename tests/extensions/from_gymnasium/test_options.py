"""Options of environments of Gymnasium: refusals, what follows from them, and how they are compared."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from installed import needs
from other_worlds import changed, holding_out, played
from refusals import check_refusal, refusals

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.tasks import changing
from icrl.evaluation.trained import changes_of
from icrl.runs.device import recorded
from icrl.runs.files import check_same


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


def test_lists_of_mappings_are_kept_as_written() -> None:
    tasks = "env.tasks=[{desc: [SF, FG], is_slippery: true}, {}]"
    config: Any = load_config(["env=gymnasium", tasks, "env.reward_values=[-1, 0.5]", "env.id=m:A/B-v0"])
    assert config.env.tasks == [{"desc": ["SF", "FG"], "is_slippery": True}, {}]
    assert config.env.reward_values == [-1.0, 0.5] and config.env.id == "m:A/B-v0" and config.env.variant == "a_b_v0"
    check_same(config, json.loads(json.dumps(recorded(config))), ["env"], "logs/here")


def test_an_older_run_is_the_same_world_and_a_time_out_makes_no_other_one() -> None:
    config: Any = load_config(["env=frozen_lake"])
    before = recorded(config)
    del before["env"]["timeout"], before["env"]["num_workers"]
    assert changes_of(replace(config, env=replace(config.env, timeout=5.0, num_workers=2)), before) == {}


def test_a_module_of_the_world_must_be_that_of_the_trained_one() -> None:
    config: Any = load_config(["env=gymnasium", "env.id=m:A-v0"])
    with pytest.raises(ConfigError, match=r"env\.id=n:A-v0: the model was trained in env\.id=m:A-v0"):
        changes_of(changed(config, id="n:A-v0"), recorded(config))


def test_tasks_are_compared_by_what_they_mean() -> None:
    """A task is its environment with its arguments."""
    lake = holding_out(load_config(["env=gymnasium", "env.width=0"]), 0)
    one, two, three = ({"desc": desc, "is_slippery": False} for desc in (["SF", "FG"], ["SF", "GF"], ["SG", "FF"]))
    wet, turned = {"is_slippery": True, "desc": ["SF", "FG"]}, dict(reversed(two.items()))
    before = changed(lake, tasks=[one, two, three])
    assert sorted(played(changed(lake, tasks=[wet, turned, one, three]), before, [0, 1])) == [[0], [3]]
    other = changed(lake, tasks=[wet, turned, one], max_episode_steps=9)
    assert sorted(played(other, before, [0, 1, 2])) == [[0]]


@needs("changing_tasks")
def test_a_stream_keeps_its_task() -> None:
    config = load_config(["env=gymnasium", "source.task_change=0.5"])
    with closing(make_env(config.env)) as env, pytest.raises(ConfigError, match=r"task_change=0\.5: a stream of env"):
        changing(env, config, env.all_tasks(), [0, 1])


LAKES = ("env=gymnasium", "env.tasks=[{is_slippery: 1}, {is_slippery: 0}]")
CARTS = ("env=gymnasium_cart_pole", "env.max_episode_steps=9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*LAKES, "env.task_visible=true"), "needs vectors as observations, not Discrete"),
        ((*CARTS, "env.task_visible=true", "env.tasks=[{set.gravity: [9.8]}, {}]"), "must be a number"),
    ],
)
def test_worlds_that_cannot_show_their_tasks_are_refused(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(load_config(options).env)
