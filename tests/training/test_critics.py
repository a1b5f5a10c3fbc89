"""Critics and trunks from checkpoints: what each takes over, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import CONFIG, SPEC, batch_of, config_of, fresh_critic, shown
from models import outspoken
from torch import Tensor, nn

from src.contracts import ConfigError, Json
from src.nn.critic import Critic
from src.nn.gpt import GPT
from src.runtime import recorded
from src.schema import Config
from src.training import checkpoint
from src.training.critics import (
    check_critic,
    initialize,
    load_critic,
    load_critic_weights,
    load_heads,
    load_trunk,
    make_critic,
    open_finished,
    snapshot_state,
)

CPU = torch.device("cpu")


def described(config: Config = CONFIG, program: str = "train_ilql") -> Json:
    """As a file says it."""
    return json.loads(json.dumps({"program": program, "config": recorded(config), "env": SPEC._asdict()}))


def saved(folder: Path, model: nn.Module, config: Config = CONFIG, program: str = "train_ilql") -> str:
    """The path of a checkpoint that `model` has there."""
    checkpoint.save(folder, "last", 3, {"update": 3, "model": model.state_dict()}, described(config, program), 1)
    return str(folder / "last-000000003.pt")


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"critic": {"separate_value": True, "imitation_scaling": 1.0}},
        {"critic": {"backup": "max", "v_loss_scaling": 0.0}, "model": {"tokens": "cross", "induction": True}},
        {"encoder": {"dimension": 12, "num_heads": 3}, "decoder": {"num_layers": 3, "dim_feedforward": 5}},
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


def test_trunks_take_over_all_but_a_policys_head(tmp_path: Path) -> None:
    """Of a critic, those of its slow copy."""
    other = outspoken(fresh_critic())
    gpt = outspoken(GPT(CONFIG.model, SPEC), 0.7)
    critic, policy = fresh_critic(), GPT(CONFIG.model, SPEC)
    head = policy.policy_head.weight.clone()
    load_trunk("encoder.load_from", saved(tmp_path / "a", other), [critic.online.trunk, policy], CPU)
    assert equal(critic.online.trunk.state_dict(), other.target.trunk.state_dict())
    assert torch.equal(policy.prev_action.weight, other.target.trunk.prev_action.weight)
    load_trunk("encoder.load_from", saved(tmp_path / "b", gpt, program="train_gpt"), [critic.online.trunk, policy], CPU)
    assert torch.equal(critic.online.trunk.prev_action.weight, gpt.prev_action.weight)
    assert torch.equal(policy.policy_head.weight, head)


def test_the_slow_copy_of_a_new_critic_is_what_it_starts_as(tmp_path: Path) -> None:
    other = outspoken(fresh_critic())
    path = saved(tmp_path, other)
    for options in (
        {"encoder": {"load_from": path}},
        {"decoder": {"load_from": path}},
        {"encoder": {"load_from": path}, "decoder": {"load_from": path}},
    ):
        critic = fresh_critic()
        initialize(config_of(**options), critic, CPU)
        assert equal(critic.online.state_dict(), critic.target.state_dict())
        assert critic.updates == 0
    critic = fresh_critic()
    initialize(config_of(critic={"initial_model": path}), critic, CPU)
    assert equal(critic.state_dict(), other.state_dict())


@pytest.mark.parametrize("load", [load_critic_weights, load_heads])
def test_only_critics_have_critics_weights(tmp_path: Path, load: Any) -> None:
    path = saved(tmp_path, GPT(CONFIG.model, SPEC), program="train_gpt")
    with pytest.raises(ConfigError, match=rf"option={path}: is the model of train_gpt"):
        load("option", path, fresh_critic(), CPU)


def test_another_form_is_refused_with_what_does_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path, fresh_critic())
    wide: Critic = fresh_critic(config_of(encoder={"dimension": 12, "num_heads": 3}))
    for load in (load_critic_weights, load_heads):
        with pytest.raises(ConfigError, match=rf"option={path}: does not fit the options.*size mismatch"):
            load("option", path, wide, CPU)
    with pytest.raises(ConfigError, match="size mismatch"):
        load_trunk("option", path, [wide.online.trunk], CPU)
    imitating = fresh_critic(config_of(critic={"imitation_scaling": 1.0}))
    with pytest.raises(ConfigError, match=r"Missing key.*policy_head"):
        load_critic_weights("option", path, imitating, CPU)


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
    (folder / "finished.json").write_text("{}")
    critic, about = load_critic(config, CPU)
    assert equal(critic.state_dict(), other.state_dict()) and about["step"] == 3
    assert not any(module.training for module in critic.modules())
    smaller = load_critic(config, CPU, SPEC._replace(success="goal"))[0]
    assert smaller.online.spec.success == "goal"


@pytest.mark.parametrize(
    ("group", "option", "value"), [("env", "size", 7), ("tasks", "seed", 5), ("model", "context_len", 3)]
)
def test_a_critic_of_another_world_split_or_context_guides_nobody(group: str, option: str, value: int) -> None:
    check_critic(CONFIG, described(), described())
    other = described()
    before = other["config"][group][option]
    other["config"][group][option] = value
    for critic, guided, then in ((other, described(), value), (described(), other, before)):
        with pytest.raises(ConfigError, match=rf"the critic of run=.* was made with {group}\.{option}={then}"):
            check_critic(CONFIG, critic, guided)


def test_a_folder_without_snapshots_of_a_critic(tmp_path: Path) -> None:
    assert snapshot_state(CONFIG, CPU) is None
    config = config_of(critic={"initial_model_prefix": str(tmp_path)})
    with pytest.raises(ConfigError, match=rf"critic.initial_model_prefix={tmp_path}: has no snapshots"):
        snapshot_state(config, CPU)
    saved(tmp_path, GPT(CONFIG.model, SPEC), program="train_gpt")
    with pytest.raises(ConfigError, match="is the model of train_gpt, and must be a critic's"):
        snapshot_state(config, CPU)
    saved(tmp_path, fresh_critic())
    with pytest.raises(ConfigError, match=r"critic.initial_model_index=2: .* has snapshots 3"):
        snapshot_state(config_of(critic={"initial_model_prefix": str(tmp_path), "initial_model_index": 2}), CPU)
    state = snapshot_state(config, CPU)
    assert state is not None and state["update"] == 3
