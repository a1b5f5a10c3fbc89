"""Models that new ones start from: what each takes over, and what it refuses."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import CONFIG, SPEC, SPLIT, batch_of, config_of, fresh_critic, same_weights, saved
from models import outspoken

from icrl.config.root import Config
from icrl.config.schedules import Clock
from icrl.contracts import ConfigError, EnvSpec, Json
from icrl.nn.critic import Critic
from icrl.nn.gpt import GPT
from icrl.objectives.ilql import ImplicitQLearning
from icrl.runs import checkpoint
from icrl.runs.distributed import Ranks
from icrl.training.updates import Updater
from icrl.training.warm_start import (
    initialize,
    load_critic_weights,
    load_heads,
    load_trunk,
    read_model,
    snapshot_state,
)

CPU = torch.device("cpu")


def test_trunks_take_over_all_but_a_policys_head(tmp_path: Path) -> None:
    """Of a critic, those of its slow copy."""
    other = outspoken(fresh_critic())
    gpt = outspoken(GPT(CONFIG.model, SPEC), 0.7)
    critic, policy = fresh_critic(), GPT(CONFIG.model, SPEC)
    head = policy.policy_head.weight.clone()
    load_trunk("encoder.load_from", saved(tmp_path / "a", other), [critic.online.trunk, policy], SPLIT, CPU)
    assert same_weights(critic.online.trunk.state_dict(), other.target.trunk.state_dict())
    assert torch.equal(policy.prev_action.weight, other.target.trunk.prev_action.weight)
    load_trunk(
        "encoder.load_from", saved(tmp_path / "b", gpt, program="train_gpt"), [critic.online.trunk, policy], SPLIT, CPU
    )
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
        initialize(config_of(**options), critic, SPLIT, CPU)
        assert same_weights(critic.online.state_dict(), critic.target.state_dict())
        assert critic.updates == 0
    critic = fresh_critic()
    initialize(config_of(critic={"initial_model": path}), critic, SPLIT, CPU)
    assert same_weights(critic.state_dict(), other.state_dict())


@pytest.mark.parametrize("load", [load_critic_weights, load_heads])
def test_only_critics_have_critics_weights(tmp_path: Path, load: Any) -> None:
    path = saved(tmp_path, GPT(CONFIG.model, SPEC), program="train_gpt")
    with pytest.raises(ConfigError, match=rf"option={path}: is a model of train_gpt, and must be one of train_ilql"):
        load("option", path, fresh_critic(), SPLIT, CPU)


def test_another_form_is_refused_with_what_does_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path, fresh_critic())
    wide: Critic = fresh_critic(config_of(encoder={"dimension": 12, "num_heads": 3}))
    for load in (load_critic_weights, load_heads):
        with pytest.raises(ConfigError, match=rf"option={path}: does not fit the options.*size mismatch"):
            load("option", path, wide, SPLIT, CPU)
    with pytest.raises(ConfigError, match="size mismatch"):
        load_trunk("option", path, [wide.online.trunk], SPLIT, CPU)
    imitating = fresh_critic(config_of(critic={"imitation_scaling": 1.0}))
    with pytest.raises(ConfigError, match=r"Missing key.*policy_head"):
        load_critic_weights("option", path, imitating, SPLIT, CPU)


# ---- what they must not have learned from


def here(train: list[int], development: list[int], held_out: list[int]) -> Json:
    return {"all": SPLIT["all"], "train": train, "development": development, "held_out": held_out}


@pytest.mark.parametrize(
    ("then", "now", "leaked"),
    [
        (here([0, 1, 2, 3], [3], [4, 5]), here([0, 1, 2, 3], [3], [4, 5]), 0),
        (here([0, 1, 2, 3], [3], [4, 5]), here([0, 1, 2, 4], [4], [3, 5]), 0),  # what it was validated on is held out
        (here([0, 1, 2, 3], [], [4, 5]), here([0, 1, 2, 3], [3], [4, 5]), 1),  # it learned on what is set aside here
        (here([0, 1, 2, 3], [3], [4, 5]), here([5, 4, 3, 2], [2], [1, 0]), 3),
        (here([1, 0], [0], [2]), here([0, 2, 3], [], [1]), 1),
    ],
)
def test_a_model_that_learned_on_unseen_tasks_is_refused(tmp_path: Path, then: Json, now: Json, leaked: int) -> None:
    path = saved(tmp_path / "critic", fresh_critic(), tasks=then)
    gpt = saved(tmp_path / "gpt", GPT(CONFIG.model, SPEC), program="train_gpt", tasks=then)
    critic, trunk = fresh_critic(), GPT(CONFIG.model, SPEC)

    starts = {
        "option": (
            lambda: load_trunk("option", path, [trunk], now, CPU),
            lambda: load_trunk("option", gpt, [trunk], now, CPU),
            lambda: load_heads("option", path, critic, now, CPU),
            lambda: load_critic_weights("option", path, critic, now, CPU),
        ),
        "encoder.load_from": (lambda: initialize(config_of(encoder={"load_from": gpt}), critic, now, CPU),),
        "decoder.load_from": (lambda: initialize(config_of(decoder={"load_from": path}), critic, now, CPU),),
        "critic.initial_model": (lambda: initialize(config_of(critic={"initial_model": path}), critic, now, CPU),),
        "critic.initial_model_prefix": (lambda: snapshot_state(from_there(tmp_path / "critic"), critic, now, CPU),),
    }
    for option, several in starts.items():
        for start in several:
            if leaked:
                with pytest.raises(ConfigError, match=rf"^{option}=.*: learned on {leaked} tasks that are held out"):
                    start()
            else:
                start()


@pytest.mark.parametrize("program", ["train_agents", None])
def test_models_of_other_programs_are_refused(tmp_path: Path, program: str | None) -> None:
    path = saved(tmp_path / "a", GPT(CONFIG.model, SPEC), program=program)
    foreign = tmp_path / "b"
    checkpoint.save(foreign, "last", 3, {"agents": torch.zeros(1)}, {"of": "agents"}, 1)  # says nothing of a program
    for one, found in ((path, program), (str(foreign / "last-000000003.pt"), None)):
        with pytest.raises(ConfigError, match=re.escape(f"option={one}: is a model of {found}, and must be one of ")):
            load_trunk("option", one, [GPT(CONFIG.model, SPEC)], SPLIT, CPU)


@pytest.mark.parametrize("program", ["train_gpt", "train_ilql", "extract_policy"])
def test_what_any_of_the_three_programs_made_can_be_read(tmp_path: Path, program: str) -> None:
    path = saved(tmp_path, GPT(CONFIG.model, SPEC), program=program)
    state, about = read_model("option", path, SPLIT, CPU)
    assert state["step"] == 3 and about["program"] == program


# ---- snapshots


def from_there(folder: Path, **changes: dict[str, Any]) -> Config:
    """A configuration that goes on from the newest snapshot in `folder`."""
    return config_of(**changes | {"critic": {"initial_model_prefix": str(folder)} | changes.get("critic", {})})


def test_a_folder_without_snapshots_of_a_critic(tmp_path: Path) -> None:
    critic = fresh_critic()
    assert snapshot_state(CONFIG, critic, SPLIT, CPU) is None
    config = from_there(tmp_path)
    with pytest.raises(ConfigError, match=rf"critic.initial_model_prefix={tmp_path}: has no snapshots"):
        snapshot_state(config, critic, SPLIT, CPU)
    saved(tmp_path, GPT(CONFIG.model, SPEC), program="train_gpt")
    with pytest.raises(ConfigError, match="is a model of train_gpt, and must be one of train_ilql"):
        snapshot_state(config, critic, SPLIT, CPU)
    saved(tmp_path, critic)
    with pytest.raises(ConfigError, match=r"critic.initial_model_index=2: .* has snapshots 3"):
        snapshot_state(from_there(tmp_path, critic={"initial_model_index": 2}), critic, SPLIT, CPU)
    state = snapshot_state(config, critic, SPLIT, CPU)
    assert state is not None and state["step"] == 3 and same_weights(state["model"], critic.state_dict())


OTHER_STATE = {
    "optimizer": [("beta1", 0.5), ("beta2", 0.5), ("epsilon", 1e-3), ("name", "adam")],
    "device": [("dtype", "float64"), ("amp_dtype", "bfloat16"), ("amp_dtype", "float16")],
}


@pytest.mark.parametrize(("group", "option", "value"), [(g, *one) for g, some in OTHER_STATE.items() for one in some])
def test_a_snapshot_goes_on_with_what_its_state_depends_on(tmp_path: Path, group: str, option: str, value: Any) -> None:
    """In both directions; only a new optimizer may be another."""
    changes = {group: {option: value}}
    for name, then, now in (("a", {}, changes), ("b", changes, {})):
        saved(tmp_path / name, fresh_critic(), config=config_of(**then))
        was, is_now = (getattr(getattr(config_of(**one), group), option) for one in (then, now))
        said = re.escape(f"was made with {group}.{option}={was}, not {is_now}; give {group}.{option}={was}")
        with pytest.raises(ConfigError, match=rf"critic.initial_model_prefix={tmp_path / name}: {said}"):
            snapshot_state(from_there(tmp_path / name, **now), fresh_critic(), SPLIT, CPU)
        optimizer = now.get("optimizer", {}) | {"initialize": True}
        anew = from_there(tmp_path / name, **now | {"optimizer": optimizer})
        if group == "optimizer":
            state = snapshot_state(anew, fresh_critic(), SPLIT, CPU)
            assert state is not None and state["updater"]["optimizer"]["state"] == {}
        else:
            with pytest.raises(ConfigError, match=said):
                snapshot_state(anew, fresh_critic(), SPLIT, CPU)


def test_a_snapshot_goes_on_with_other_rates(tmp_path: Path) -> None:
    saved(tmp_path, fresh_critic())
    rates = {"learning_rate": 0.5, "weight_decay": 0.5, "max_gradient_norm": 0.5}
    state = snapshot_state(from_there(tmp_path, optimizer=rates), fresh_critic(), SPLIT, CPU)
    assert state is not None and state["updater"]["optimizer"] == "of then"


@pytest.mark.parametrize(
    ("spec", "form", "why"),
    [
        (SPEC._replace(num_obs=16, width=4), {}, "was made in another world"),
        (SPEC._replace(reward_values=(0.0, 2.0)), {}, "was made in another world"),
        (SPEC, {"encoder": {"dimension": 12, "num_heads": 3}}, "does not fit the options"),
        (SPEC, {"critic": {"separate_value": True}}, "does not fit the options"),
    ],
)
def test_a_snapshot_of_another_world_or_form_is_refused(
    tmp_path: Path, spec: EnvSpec, form: dict[str, Any], why: str
) -> None:
    """And leaves the critic as it is."""
    saved(tmp_path, outspoken(fresh_critic()))
    config = from_there(tmp_path, **form)
    critic = fresh_critic(config, spec)
    before = {name: value.clone() for name, value in critic.state_dict().items()}
    with pytest.raises(ConfigError, match=f"critic.initial_model_prefix={tmp_path}: {why}"):
        snapshot_state(config, critic, SPLIT, CPU)
    assert same_weights(critic.state_dict(), before)


def test_a_new_optimizer_fits_the_critic_that_goes_on(tmp_path: Path) -> None:
    saved(tmp_path, fresh_critic())
    config, critic = from_there(tmp_path, optimizer={"initialize": True}), fresh_critic()
    state = snapshot_state(config, critic, SPLIT, CPU)
    assert state is not None
    updater = Updater(critic, ImplicitQLearning(critic), config, CPU, Ranks())
    updater.load_state_dict({"scaler": {}} | state["updater"])
    updater.update(batch_of(4), Clock(0, 0, 0, 0))
    assert {float(one["step"]) for one in updater.optimizer.state.values()} == {1.0}


def test_a_trunk_may_come_from_another_world(tmp_path: Path) -> None:
    """Whose tasks have nothing to do with those of this one, whatever their numbers."""
    there = here([0, 1, 2, 3], [], [4, 5]) | {"all": [[9], [8], [7], [6], [5], [4]]}
    trunk, other = GPT(CONFIG.model, SPEC), fresh_critic()
    path = saved(tmp_path, other, tasks=there)
    load_trunk("option", path, [trunk], here([4, 5], [], [0, 1, 2, 3]), CPU)
    assert torch.equal(trunk.prev_action.weight, other.target.trunk.prev_action.weight)
