"""Critics: outputs, caches, gradients, the target network; which trained critics are loaded and which refused."""

import itertools
import re
from pathlib import Path
from typing import Any

import critics
import pytest
import torch
from critics import SPEC, batch_of, config_of, described, fresh_critic, shown
from installed import INDUCTION, needs
from models import outspoken
from policies import CONTEXT_LEN, NUM_STREAMS, Recorded, assert_slow, columns_of, gpt, play
from space_worlds import WORLDS

from icrl import extensions
from icrl.config.options import replace
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import make_env
from icrl.extensions.offline_rl.acting import Guided, lone_critic, offline_kind
from icrl.extensions.offline_rl.critic import ValueNetwork, trunk_config
from icrl.extensions.offline_rl.critics import check_critic, load_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import Context, Window, context_of
from icrl.runs import checkpoint
from icrl.spaces import discrete_spec


@needs("vectors")
def test_the_largest_q_is_that_of_a_legal_action() -> None:
    spec = discrete_spec(4, SPEC.num_actions, SPEC.reward_values, 0, SPEC.max_episode_steps, points=(1, 1))
    critic = fresh_critic(config_of(critic={"backup": "max", "v_loss_scaling": 0.0}), spec).eval()
    obs = torch.tensor([[[2, 1, *legal] for legal in ((1, 1, 0, 0), (0, 0, 1, 1), (0, 1, 0, 0))]])
    zero = torch.zeros(1, 3, dtype=torch.long)
    values = critic(Context(obs, zero, zero.float(), zero, obs, zero, zero.bool()))
    for t, legal in enumerate(obs[0, :, -4:].bool()):
        assert values.value[0, t] == values.least_q[0, t][legal].max()


@pytest.mark.parametrize("separate", [False, True])
def test_every_parameter_learns_but_those_of_the_target_network_a_copy(separate: bool) -> None:
    """Data parallel processes need this."""
    critic = fresh_critic(config_of(critic={"separate_value": separate})).train()
    torch.stack([tensor.sum() for tensor in critic(shown(batch_of()))]).sum().backward()
    for name, parameter in critic.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None) == name.startswith("online."), name
    for online, target in zip(critic.online.parameters(), critic.target.parameters(), strict=True):
        assert torch.equal(online, target) and online.data_ptr() != target.data_ptr()
    assert all(module.training for module in critic.online.modules())
    assert not any(module.training for module in critic.target.modules())


def test_critics_are_for_integers() -> None:
    message = r"a critic needs Discrete actions, .*; this world has actions in Box.* and any number of rewards"
    with pytest.raises(ConfigError, match=message):
        fresh_critic(critics.CONFIG, WORLDS["vector to arm"])


# ---- models that a critic guides

ROOM = make_env(replace(critics.CONFIG.env, size=4, max_episode_steps=6, random_start=True))
CRITICS = {
    "one trunk": {},
    "two trunks": {"critic": {"separate_value": True}, "model": {"tokens": "interleaved", "induction": INDUCTION[-1]}},
    "largest Q": {"critic": {"backup": "max", "v_loss_scaling": 0.0}},
    "cross attention": {"model": {"tokens": "cross", "position": "sinusoidal"}},
}
if "recurrent" in extensions.NAMES:
    CRITICS["delta"] = {"critic": {"separate_value": True}, "model": {"trunk": "delta", "induction": INDUCTION[-1]}}
    CRITICS["gru"] = {"model": {"trunk": "gru"}}


def guided(form: str, has_prior: bool) -> Guided:
    config = config_of(**CRITICS[form])
    trunk = trunk_config(config.model, config.encoder)
    critic = outspoken(ValueNetwork(trunk, config.decoder, config.critic, ROOM.spec)).eval()
    return Guided(gpt(ROOM.spec, 0.2, **CRITICS[form].get("model", {})) if has_prior else None, critic, 1.7).eval()


@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.parametrize("form", CRITICS)
def test_guided_logits_are_the_priors_and_the_scaled_advantages(form: str, has_prior: bool) -> None:
    """The logits through the caches are those of the slow reference."""
    model = guided(form, has_prior)
    policy = Recorded(model)
    played = play(policy, ROOM)
    assert_slow(policy, played)
    context = context_of(Window(*(column[:, :CONTEXT_LEN] for column in columns_of(played))))
    with torch.no_grad():
        got, values = model(context), model.critic(context)
        before = model.prior(context) if model.prior else torch.zeros_like(got)
    for row, t, action in itertools.product(range(NUM_STREAMS), range(CONTEXT_LEN), range(ROOM.spec.num_actions)):
        expected = 1.7 * (min(values.q[:, row, t, action].tolist()) - float(values.value[row, t]))
        assert got[row, t, action].item() == pytest.approx(expected + float(before[row, t, action]), abs=1e-4)


@pytest.mark.parametrize("form", ["two trunks", *(one for one in ("delta", "gru") if one in CRITICS)])
@torch.no_grad()
def test_streams_of_a_cache_are_replaced_with_their_memory(form: str) -> None:
    model, some = guided(form, has_prior=True), torch.tensor([1, 3])
    columns = columns_of(play(Recorded(model), ROOM))
    one, other = (context_of(Window(*(column[:, at : at + 3] for column in columns))) for at in (0, 4))
    mixed, kept, theirs = (model.new_cache(size) for size in (NUM_STREAMS, NUM_STREAMS, 2))
    model(one, mixed)
    model(one, kept)
    model(Context(*(column[some] for column in other)), theirs)
    mixed.replace(some, theirs)
    newest = Context(*(column[:, -1:] for column in other))
    expected = model(newest, kept)
    expected[some] = model(Context(*(column[some] for column in newest)), theirs)
    torch.testing.assert_close(model(newest, mixed), expected)


# ---- trained critics, and every refusal


CPU = torch.device("cpu")


def config_for(root: Path, **changes: dict[str, Any]) -> OfflineConfig:
    return replace(config_of(**changes), root=str(root), run="mine")


@pytest.fixture
def finished(tmp_path: Path) -> OfflineConfig:
    """Configuration of a run with a finished critic: the newest of update 5, the best of update 3."""
    folder = tmp_path / "logs/mine/ilql"
    best, last = (outspoken(fresh_critic(), size).state_dict() for size in (0.5, 1.0))
    checkpoint.save(folder, "best", 3, {"step": 3, "model": best}, described(), 1)
    critics.save_finished(folder, last, 5)
    return config_for(tmp_path)


@pytest.mark.parametrize(("kind", "update"), [("last", 5), ("best", 3)])
def test_the_checkpoint_that_is_asked_for_is_loaded(finished: OfflineConfig, kind: str, update: int) -> None:
    state, _ = checkpoint.load_newest(finished.run_folder / "ilql", kind, CPU) or ({}, {})
    critic, about = load_critic(finished, CPU, kind=kind)
    assert about["step"] == update and critics.same_weights(critic.state_dict(), state["model"])
    assert not any(module.training for module in critic.modules())
    assert load_critic(finished, CPU, SPEC._replace(success="goal"))[0].online.spec.success == "goal"
    double = replace(finished, device=replace(finished.device, dtype="float64"))
    assert {parameter.dtype for parameter in load_critic(double, CPU)[0].parameters()} == {torch.float64}


@torch.no_grad()
def test_critics_act_by_their_slow_copies(finished: OfflineConfig) -> None:
    """Alone, with `policy.advantage_scale`; in training, as the policy that would be extracted."""
    context, critic = shown(batch_of()), load_critic(finished, CPU)[0]
    advantage = critic.target(context).advantage
    config = replace(finished, policy=replace(finished.policy, model="critic", advantage_scale=2.0))
    kind = offline_kind(config.policy, config.finetune)
    assert kind and not torch.allclose(advantage, critic.online(context).advantage)
    alone = kind.open(config, CPU).make(config, SPEC, CPU)
    training = lone_critic(config_of(awr={"inverse_temperature": 3.0}), SPEC, critic.state_dict(), CPU)
    torch.testing.assert_close(alone(context), 2 * advantage)
    torch.testing.assert_close(training(context), 3 * advantage)


def test_a_critic_with_other_options_or_unfit_weights_is_refused(finished: OfflineConfig) -> None:
    """Also where its parameters would fit, as with other heads or another dropout."""
    others = {"encoder": {"num_heads": 1}, "decoder": {"dropout": 0.1}, "critic": {"discount_factor": 0.5}}
    for group, changes in (others | {"model": {"tokens": "cross"}}).items():
        [(option, value)] = changes.items()
        other = config_for(Path(finished.root), **{group: changes})
        with pytest.raises(ConfigError, match=rf"critic of run=mine was made with {group}\.{option}=.* has {value}"):
            load_critic(other, CPU)
    deeper = fresh_critic(config_of(decoder={"num_layers": 3})).state_dict()
    critics.save_finished(finished.run_folder / "ilql", deeper, 6)
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
            check_critic(critics.CONFIG, critic, guided)
    elsewhere["histories"][0]["folder"] = "moved"
    for same in (described(), elsewhere, {"config": described()["config"]}):  # a configuration has no histories yet
        check_critic(critics.CONFIG, described(), same)
