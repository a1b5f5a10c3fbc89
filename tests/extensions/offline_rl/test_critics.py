"""Trained critics and warm starts: what is taken over, and every refusal."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import CONFIG, SPEC, SPLIT, batch_of, config_of, described, finish, fresh_critic, same_weights, saved
from models import outspoken

from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.extensions.offline_rl import critics
from icrl.extensions.offline_rl.critic import Critic
from icrl.extensions.offline_rl.critics import check_critic, load_critic, load_trunk, read_model, snapshot_state
from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import GPT
from icrl.runs import checkpoint
from icrl.runs.distributed import Ranks
from icrl.training import finished as opening
from icrl.training.updates import Updater

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
        opening.open_finished(folder, "last", "train_ilql", CPU)
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
        opening.check_described({"config": {}}, Path("here"))


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


# ---- warm starts

THREE = ("train_gpt", "train_ilql", "extract_policy")
WIDE = {"encoder": {"embed_dim": 12, "num_heads": 3}}


def gpt() -> GPT:
    return GPT(CONFIG.model, SPEC)


def from_there(folder: Path, **changes: dict[str, Any]) -> OfflineConfig:
    """A configuration that continues the newest snapshot in `folder`."""
    return config_of(**changes | {"critic": {"initial_model_prefix": str(folder)} | changes.get("critic", {})})


def start(option: str, path: str, critic: Critic, split: Json = SPLIT) -> Any:
    if option == "critic.initial_model_prefix":
        return snapshot_state(from_there(Path(path).parent), critic, split, CPU)
    group, _, name = option.partition(".")
    return critics.initialize(config_of(**{group: {name: path}}), critic, split, CPU)


STARTS = ("encoder.load_from", "decoder.load_from", "critic.initial_model", "critic.initial_model_prefix")


def test_a_trunk_comes_from_a_target_network_or_a_gpt_without_its_head(tmp_path: Path) -> None:
    other, source = outspoken(fresh_critic()), outspoken(gpt(), 0.7)
    critic, policy = fresh_critic(), gpt()
    head = policy.policy_head.weight.clone()
    load_trunk("encoder.load_from", saved(tmp_path / "a", other), [critic.online.trunk, policy], SPLIT, CPU)
    assert same_weights(critic.online.trunk.state_dict(), other.target.trunk.state_dict())
    assert torch.equal(policy.prev_action.weight, other.target.trunk.prev_action.weight)
    path = saved(tmp_path / "b", source, program="train_gpt")
    load_trunk("encoder.load_from", path, [critic.online.trunk, policy], SPLIT, CPU)
    assert torch.equal(critic.online.trunk.prev_action.weight, source.prev_action.weight)
    assert torch.equal(policy.policy_head.weight, head)


def test_trunk_and_heads_start_both_networks_and_a_whole_critic_is_copied(tmp_path: Path) -> None:
    other = outspoken(fresh_critic())
    path = saved(tmp_path, other)
    for option, part in (("encoder.load_from", ".trunk."), ("decoder.load_from", "_head"), (STARTS[2], "")):
        critic = fresh_critic()
        start(option, path, critic)
        assert same_weights(critic.online.state_dict(), critic.target.state_dict()) or not part
        for name, value in critic.state_dict().items():
            source = name.replace("online", "target") if part else name
            assert part not in name or torch.equal(value, other.state_dict()[source])
    config = config_of(encoder={"load_from": path}, critic={"initial_model_prefix": str(tmp_path)})
    options = ["encoder.load_from", "decoder.load_from", "critic.initial_model_prefix"]
    recorded = critics.checksums(config, options)
    assert set(recorded) == {options[0], options[2]} and len(set(recorded.values())) == 1


@pytest.mark.parametrize("option", STARTS)
def test_a_model_that_does_not_fit_or_is_of_another_program_is_refused(tmp_path: Path, option: str) -> None:
    path = saved(tmp_path / "a", fresh_critic())
    with pytest.raises(ConfigError, match=rf"{option}=.*size mismatch"):
        start(option, path, fresh_critic(config_of(**WIDE)))
    policy = saved(tmp_path / "b", gpt(), program="train_gpt")
    checkpoint.save(tmp_path / "c", "last", 3, {"agents": torch.zeros(1)}, {"of": "agents"}, 1)  # names no program
    others = [(policy, "train_gpt")] * (option != "encoder.load_from") + [(tmp_path / "c/last-000000003.pt", "None")]
    for other, program in others:
        with pytest.raises(
            ConfigError, match=rf"{option}={other}: is a model of {program}, but must be one of .*train_il"
        ):
            start(option, str(other), fresh_critic())


def test_models_of_three_programs_can_be_read(tmp_path: Path) -> None:
    for program in THREE:
        state, about = read_model("option", saved(tmp_path, gpt(), program=program), SPLIT, CPU, *THREE)
        assert state["step"] == 3 and about["program"] == program
    with pytest.raises(ConfigError, match="option=gone.pt: must be an existing checkpoint"):
        read_model("option", "gone.pt", SPLIT, CPU, *THREE)


def here(train: str, development: str, held_out: str) -> Json:
    groups = {"train": train, "development": development, "held_out": held_out}
    return {"all": SPLIT["all"]} | {name: [int(task) for task in tasks] for name, tasks in groups.items()}


@pytest.mark.parametrize(
    ("then", "now", "leaked"),
    [
        (here("0123", "3", "45"), here("0123", "3", "45"), 0),
        (here("0123", "3", "45"), here("0124", "4", "35"), 0),  # its development task is held out
        (here("0123", "", "45"), here("0123", "3", "45"), 1),  # it learned on a development task
        (here("0123", "3", "45"), here("5432", "2", "10"), 3),
    ],
)
def test_a_model_that_learned_on_unseen_tasks_is_refused(tmp_path: Path, then: Json, now: Json, leaked: int) -> None:
    path = saved(tmp_path / "critic", fresh_critic(), tasks=then)
    for option in STARTS:
        refused = pytest.raises(ConfigError, match=rf"^{option}=.*: learned on {leaked} tasks that are held out")
        with refused if leaked else nullcontext():
            start(option, path, fresh_critic(), now)
    elsewhere = now | {"all": [[9], [8], [7], [6], [5], [4]]}  # tasks of another world, whatever their numbers
    load_trunk("option", path, [gpt()], elsewhere, CPU)


# ---- snapshots


def test_a_snapshot_is_found_by_its_update(tmp_path: Path) -> None:
    critic = fresh_critic()
    assert snapshot_state(CONFIG, critic, SPLIT, CPU) is None
    with pytest.raises(ConfigError, match=rf"critic.initial_model_prefix={tmp_path}: has no snapshots"):
        snapshot_state(from_there(tmp_path), critic, SPLIT, CPU)
    saved(tmp_path, critic)
    with pytest.raises(ConfigError, match=r"critic.initial_model_index=2: .* has snapshots 3"):
        snapshot_state(from_there(tmp_path, critic={"initial_model_index": 2}), critic, SPLIT, CPU)
    with pytest.raises(ConfigError, match=r"is at update 3, which is beyond trainer.num_iterations=2"):
        snapshot_state(from_there(tmp_path, trainer={"num_iterations": 2}), critic, SPLIT, CPU)
    rates = {"learning_rate": 0.5, "weight_decay": 0.5, "max_gradient_norm": 0.5}  # may be others
    state = snapshot_state(from_there(tmp_path, optimizer=rates), critic, SPLIT, CPU)
    assert state is not None and state["step"] == 3 and same_weights(state["model"], critic.state_dict())
    assert state["updater"]["optimizer"] == "of then"


KEPT = [("optimizer", "beta1", 0.5), ("optimizer", "name", "adam"), ("device", "dtype", "float64")]


@pytest.mark.parametrize(("group", "option", "value"), KEPT)
def test_a_snapshot_keeps_the_options_of_its_state(tmp_path: Path, group: str, option: str, value: Any) -> None:
    """In both directions; only a new optimizer may differ."""
    changes = {group: {option: value}}
    for name, then, now in (("a", {}, changes), ("b", changes, {})):
        saved(tmp_path / name, fresh_critic(), config=config_of(**then))
        was, is_now = (getattr(getattr(config_of(**one), group), option) for one in (then, now))
        made = re.escape(f"was made with {group}.{option}={was}, not {is_now}; give {group}.{option}={was}")
        with pytest.raises(ConfigError, match=rf"critic.initial_model_prefix={tmp_path / name}: {made}"):
            snapshot_state(from_there(tmp_path / name, **now), fresh_critic(), SPLIT, CPU)
        anew = from_there(tmp_path / name, **now | {"optimizer": now.get("optimizer", {}) | {"initialize": True}})
        with nullcontext() if group == "optimizer" else pytest.raises(ConfigError, match=made):
            assert snapshot_state(anew, fresh_critic(), SPLIT, CPU)


def test_a_snapshot_of_another_world_or_form_leaves_the_critic_unchanged(tmp_path: Path) -> None:
    saved(tmp_path, outspoken(fresh_critic()))
    for spec, form, why in (
        (SPEC._replace(reward_values=(0.0, 2.0)), {}, "its world differs from that of"),
        (SPEC, WIDE, "does not fit the options"),
        (SPEC, {"critic": {"separate_value": True}}, "does not fit the options"),
    ):
        config = from_there(tmp_path, **form)
        critic, same = fresh_critic(config, spec), fresh_critic(config, spec)
        same.load_state_dict(critic.state_dict())
        with pytest.raises(ConfigError, match=f"critic.initial_model_prefix={tmp_path}: {why}"):
            snapshot_state(config, critic, SPLIT, CPU)
        assert same_weights(critic.state_dict(), same.state_dict())


def test_a_new_optimizer_fits_the_critic_that_continues(tmp_path: Path) -> None:
    saved(tmp_path, fresh_critic())
    config, critic = from_there(tmp_path, optimizer={"initialize": True}), fresh_critic()
    state = snapshot_state(config, critic, SPLIT, CPU)
    assert state is not None
    updater = Updater(critic, ImplicitQLearning(critic), config, CPU, Ranks())
    updater.load_state_dict({"scaler": {}} | state["updater"])
    updater.update(batch_of(4), Clock(0, 0, 0, 0))
    assert {float(one["step"]) for one in updater.optimizer.state.values()} == {1.0}
