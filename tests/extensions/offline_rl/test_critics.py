"""Trained critics, and every refusal."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import CONFIG, SPEC, config_of, described, finish, fresh_critic, same_weights, saved
from models import outspoken

from icrl.config.options import replace
from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.offline_rl.critics import check_critic, load_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.runs import checkpoint

CPU = torch.device("cpu")


def config_for(root: Path, **changes: dict[str, Any]) -> OfflineConfig:
    return replace(config_of(**changes), root=str(root), run="mine")


@pytest.fixture
def finished(tmp_path: Path) -> OfflineConfig:
    """Configuration of a run with a finished critic: the newest of update 5, the best of update 3."""
    folder = tmp_path / "logs/mine/ilql"
    for kind, update, size in (("best", 3, 0.5), ("last", 5, 1.0)):
        state = {"step": update, "model": outspoken(fresh_critic(), size).state_dict()}
        checkpoint.save(folder, kind, update, state, described(), 1)
    with pytest.raises(ConfigError, match="no finished training in .*ilql: run `icrl train-ilql`"):
        checkpoint.open_model(folder, "last", "train_ilql", CPU)
    finish(folder, 5)
    return config_for(tmp_path)


@pytest.mark.parametrize(("kind", "update"), [("last", 5), ("best", 3)])
def test_the_checkpoint_that_is_asked_for_is_loaded(finished: OfflineConfig, kind: str, update: int) -> None:
    state, _ = checkpoint.load_newest(finished.run_folder / "ilql", kind, CPU) or ({}, {})
    critic, about = load_critic(finished, CPU, kind=kind)
    assert about["step"] == update and same_weights(critic.state_dict(), state["model"])
    assert not any(module.training for module in critic.modules())
    assert load_critic(finished, CPU, SPEC._replace(success="goal"))[0].online.spec.success == "goal"
    double = replace(finished, device=replace(finished.device, dtype="float64"))
    assert {parameter.dtype for parameter in load_critic(double, CPU)[0].parameters()} == {torch.float64}


def test_a_critic_with_other_options_or_unfit_weights_is_refused(finished: OfflineConfig) -> None:
    """Also where its parameters would fit, as with other heads or another dropout."""
    others = {"encoder": {"num_heads": 1}, "decoder": {"dropout": 0.1}, "critic": {"discount_factor": 0.5}}
    for group, changes in (others | {"model": {"tokens": "cross"}}).items():
        [(option, value)] = changes.items()
        other = config_for(Path(finished.root), **{group: changes})
        with pytest.raises(ConfigError, match=rf"critic of run=mine was made with {group}\.{option}=.* has {value}"):
            load_critic(other, CPU)
    saved(finished.run_folder / "ilql", fresh_critic(config_of(decoder={"num_layers": 3})), update=6)
    finish(finished.run_folder / "ilql", 6)
    with pytest.raises(ConfigError, match="the critic of run=mine: does not fit the options"):
        load_critic(finished, CPU)
    with pytest.raises(PipelineError, match=r"a checkpoint in here lacks the options of its model"):
        checkpoint.check_described({"config": {}}, Path("here"))


def test_a_critic_of_another_world_split_data_or_histories_guides_no_model() -> None:
    other, two, elsewhere = described(), described(), described()
    other["histories"][0]["sha256"] = "def"
    two["histories"] *= 2
    refused = [(*pair, "different histories") for pair in ((other, described()), (described(), other), (two, other))]
    for group, option, value in (("env", "size", 7), ("tasks", "seed", 5), ("data", "keep_every", [3])):
        changed = described()
        changed["config"][group][option] = value
        refused += [(*pair, f"{group}.{option}=") for pair in ((changed, described()), (described(), changed))]
    for critic, guided, why in refused:
        with pytest.raises(ConfigError, match=rf"the critic of run=.* {re.escape(why)}"):
            check_critic(CONFIG, critic, guided)
    elsewhere["histories"][0]["folder"] = "moved"
    for same in (described(), elsewhere, {"config": described()["config"]}):  # a configuration has no histories yet
        check_critic(CONFIG, described(), same)
