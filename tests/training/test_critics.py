"""Trained critics: what they are loaded from, and which models they may teach or guide."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import CONFIG, SPEC, config_of, described, finish, fresh_critic, same_weights, saved
from models import outspoken

from icrl.config.options import replace
from icrl.config.root import Config
from icrl.contracts import ConfigError, PipelineError
from icrl.runs import checkpoint
from icrl.training.critics import check_critic, check_described, load_critic, open_finished

CPU = torch.device("cpu")


def config_for(root: Path, **changes: dict[str, Any]) -> Config:
    return replace(config_of(**changes), root=str(root), run="mine")


@pytest.fixture
def finished(tmp_path: Path) -> Config:
    """Configuration of a run with a finished critic: the newest of update 5, the best of update 3."""
    folder = tmp_path / "logs/mine/ilql"
    for kind, update, size in (("best", 3, 0.5), ("last", 5, 1.0)):
        state = {"step": update, "model": outspoken(fresh_critic(), size).state_dict()}
        checkpoint.save(folder, kind, update, state, described(), 1)
    with pytest.raises(ConfigError, match="no finished training in .*ilql: run `python -m src.train_ilql`"):
        open_finished(folder, "last", "train_ilql", CPU)
    finish(folder, 5)
    return config_for(tmp_path)


@pytest.mark.parametrize(("kind", "update"), [("last", 5), ("best", 3)])
def test_the_checkpoint_that_is_asked_for_is_loaded(finished: Config, kind: str, update: int) -> None:
    state, _ = checkpoint.load_newest(finished.run_folder / "ilql", kind, CPU) or ({}, {})
    critic, about = load_critic(finished, CPU, kind=kind)
    assert about["step"] == update and same_weights(critic.state_dict(), state["model"])
    assert not any(module.training for module in critic.modules())
    assert load_critic(finished, CPU, SPEC._replace(success="goal"))[0].online.spec.success == "goal"
    double = replace(finished, device=replace(finished.device, dtype="float64"))
    assert {parameter.dtype for parameter in load_critic(double, CPU)[0].parameters()} == {torch.float64}


@pytest.mark.parametrize(
    ("group", "option", "value"),
    [
        ("model", "tokens", "cross"),
        ("encoder", "num_heads", 1),  # parameters are the same
        ("decoder", "dropout", 0.1),  # here too
        ("critic", "discount_factor", 0.5),
    ],
)
def test_a_critic_with_other_options_is_refused(finished: Config, group: str, option: str, value: Any) -> None:
    other = config_for(Path(finished.root), **{group: {option: value}})
    with pytest.raises(ConfigError, match=rf"the critic of run=mine was made with {group}\.{option}=.* has {value}"):
        load_critic(other, CPU)


def test_weights_that_do_not_fit_their_options_are_refused(finished: Config) -> None:
    saved(finished.run_folder / "ilql", fresh_critic(config_of(decoder={"num_layers": 3})), update=6)
    finish(finished.run_folder / "ilql", 6)
    with pytest.raises(ConfigError, match="the critic of run=mine: does not fit the options"):
        load_critic(finished, CPU)
    with pytest.raises(PipelineError, match=r"a checkpoint in here lacks the options of its model"):
        check_described({"config": {}}, Path("here"))


@pytest.mark.parametrize(
    ("group", "option", "value"), [("env", "size", 7), ("tasks", "seed", 5), ("data", "keep_every", [3])]
)
def test_a_critic_of_another_world_split_or_data_guides_no_model(group: str, option: str, value: Any) -> None:
    check_critic(CONFIG, described(), described())
    other = described()
    before = other["config"][group][option]
    other["config"][group][option] = value
    for critic, guided, then in ((other, described(), value), (described(), other, before)):
        made = re.escape(f"was made with {group}.{option}={then}, but the model that it teaches or guides with")
        with pytest.raises(ConfigError, match=f"the critic of run=.* {made}"):
            check_critic(CONFIG, critic, guided)


def test_a_critic_of_other_histories_guides_no_model() -> None:
    other, two, elsewhere = described(), described(), described()
    other["histories"][0]["sha256"] = "def"
    two["histories"] *= 2
    for critic, guided in ((other, described()), (described(), other), (two, described())):
        with pytest.raises(ConfigError, match="learned from different histories"):
            check_critic(CONFIG, critic, guided)
    elsewhere["histories"][0]["folder"] = "moved"
    check_critic(CONFIG, described(), elsewhere)
    check_critic(CONFIG, described(), {"config": described()["config"]})  # a configuration has no histories yet
