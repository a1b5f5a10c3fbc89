"""Critics from checkpoints: what they are built from, and what they are not given to."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import CONFIG, SPEC, batch_of, config_of, described, finish, fresh_critic, same_weights, saved, shown
from models import outspoken

from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.runs import checkpoint
from icrl.training.critics import check_critic, load_critic, make_critic, open_finished

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"critic": {"separate_value": True, "imitation_scaling": 1.0}},
        {"critic": {"backup": "max", "v_loss_scaling": 0.0}, "model": {"tokens": "cross", "induction": True}},
        {"encoder": {"dimension": 12, "num_heads": 3}, "decoder": {"num_layers": 3, "ff_dim": 5}},
    ],
)
@torch.no_grad()
def test_a_critic_is_made_anew_from_what_its_checkpoint_says(changes: dict[str, Any]) -> None:
    config = config_of(**changes)
    before = outspoken(fresh_critic(config)).eval()
    after = make_critic(described(config))
    after.load_state_dict(before.state_dict())
    for one, other in zip(before(shown(batch_of())), after.eval()(shown(batch_of())), strict=True):
        assert one is other is None or torch.equal(one, other)


def test_a_finished_critic_is_loaded_to_be_asked(tmp_path: Path) -> None:
    config = config_of()
    config.root, config.run = str(tmp_path), "mine"
    folder = tmp_path / "logs/mine/ilql"
    with pytest.raises(ConfigError, match="no finished training in .*ilql: run `python -m src.train_ilql`"):
        load_critic(config, CPU)
    other = outspoken(fresh_critic())
    saved(folder, other)
    with pytest.raises(ConfigError, match="no finished training"):
        open_finished(folder, "last", "train_ilql", CPU)
    finish(folder, 3)
    critic, about = load_critic(config, CPU)
    assert same_weights(critic.state_dict(), other.state_dict()) and about["step"] == 3
    assert not any(module.training for module in critic.modules())
    smaller = load_critic(config, CPU, SPEC._replace(success="goal"))[0]
    assert smaller.online.spec.success == "goal"


@pytest.fixture
def finished(tmp_path: Path) -> Config:
    """The configuration of a run with a finished critic: the newest of update 5, the best of update 3."""
    folder = tmp_path / "logs/mine/ilql"
    for kind, update, size in (("best", 3, 0.5), ("last", 5, 1.0)):
        state = {"step": update, "model": outspoken(fresh_critic(), size).state_dict()}
        checkpoint.save(folder, kind, update, state, described(), 1)
    finish(folder, 5)
    return config_for(tmp_path)


def config_for(root: Path, **changes: dict[str, Any]) -> Config:
    return dataclasses.replace(config_of(**changes), root=str(root), run="mine")


def test_the_checkpoint_that_is_asked_for_is_loaded(finished: Config) -> None:
    for kind, update in (("last", 5), ("best", 3)):
        state, _ = checkpoint.load_newest(finished.run_folder / "ilql", kind, CPU) or ({}, {})
        critic, about = load_critic(finished, CPU, kind=kind)
        assert about["step"] == update
        assert same_weights(critic.state_dict(), state["model"])


@pytest.mark.parametrize(
    ("group", "option", "value"),
    [
        ("model", "context_len", 6),
        ("model", "tokens", "cross"),
        ("encoder", "num_layers", 2),
        ("encoder", "num_heads", 1),  # parameters are the same
        ("decoder", "dropout", 0.1),  # here too
        ("critic", "expectile", 0.7),
        ("critic", "discount_factor", 0.5),
    ],
)
def test_a_critic_with_other_options_than_asked_for_is_refused(
    finished: Config, group: str, option: str, value: Any
) -> None:
    other = config_for(Path(finished.root), **{group: {option: value}})
    with pytest.raises(ConfigError, match=rf"the critic of run=mine was made with {group}\.{option}=.* says {value}"):
        load_critic(other, CPU)


def test_a_critic_of_other_weights_than_its_options_say_is_refused(finished: Config) -> None:
    saved(finished.run_folder / "ilql", fresh_critic(config_of(decoder={"num_layers": 3})), update=6)
    finish(finished.run_folder / "ilql", 6)
    with pytest.raises(ConfigError, match="the critic of run=mine: does not fit the options"):
        load_critic(finished, CPU)


def test_a_critic_is_asked_in_the_precision_of_the_run(finished: Config) -> None:
    other = dataclasses.replace(finished, device=dataclasses.replace(finished.device, dtype="float64"))
    assert {parameter.dtype for parameter in load_critic(other, CPU)[0].parameters()} == {torch.float64}


@pytest.mark.parametrize(
    ("group", "option", "value"), [("env", "size", 7), ("tasks", "seed", 5), ("data", "keep_every", [3])]
)
def test_a_critic_of_another_world_split_or_data_guides_nobody(group: str, option: str, value: Any) -> None:
    check_critic(CONFIG, described(), described())
    other = described()
    before = other["config"][group][option]
    other["config"][group][option] = value
    for critic, guided, then in ((other, described(), value), (described(), other, before)):
        said = re.escape(f"was made with {group}.{option}={then}, and what it is to teach or guide with")
        with pytest.raises(ConfigError, match=f"the critic of run=.* {said}"):
            check_critic(CONFIG, critic, guided)


def test_a_critic_of_other_histories_guides_nobody() -> None:
    other = described()
    other["histories"][0]["sha256"] = "def"
    two = described()
    two["histories"] *= 2
    for critic, guided in ((other, described()), (described(), other), (two, described())):
        with pytest.raises(ConfigError, match="learned from different histories"):
            check_critic(CONFIG, critic, guided)
    elsewhere = described()
    elsewhere["histories"][0]["folder"] = "moved"
    check_critic(CONFIG, described(), elsewhere)
    check_critic(CONFIG, described(), {"config": described()["config"]})  # a configuration has none
