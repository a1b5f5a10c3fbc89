"""What programs are said to need is what they allocate, or less."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from critics import SPEC, config_of, fresh_critic
from torch import Tensor, nn

from icrl.collection.collect import LocalUnrollWorker, make_learners
from icrl.collection.experience import Experience
from icrl.config.compose import load_config, load_players_config
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.envs import make_env
from icrl.nn.critic import trunk_config
from icrl.nn.gpt import GPT, context_of, windows_of
from icrl.point_game.learners import make_learners as make_players
from icrl.point_game.stopwatch import Stopwatch
from icrl.runs.memory import Need
from icrl.training import needs
from icrl.training.optimizers import make_optimizer

CPU = torch.device("cpu")
TASKS = 3
SMALL = (
    *("model.context_len=10", "data.kept_steps=0", "data.num_development_tasks=1", "evaluation.num_episodes=2"),
    *("source.num_learners=2", "source.num_envs=4", "source.num_env_steps=400", "source.history_steps=200"),
)
ROOM = ("env.size=3", "tasks.num_train=3", "env.max_episode_steps=6", *SMALL)
POINTS = ("experiment=point_game", "env.max_episode_steps=9", "source.hidden_size=8", *SMALL)
WORLDS = {"room": ROOM, "points": POINTS}


def size(found: list[Need], what: str) -> int:
    return next(need.size for need in found if need.what == what)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def stage_one(config: Config) -> tuple[list[Need], Any, Any, Experience]:
    env = make_env(config.env, CPU)
    tasks = env.all_tasks()[:TASKS]
    learner, streams, noise = make_learners(config, env, tasks, CPU)
    player = LocalUnrollWorker(config.source, env, learner, streams, noise)
    return needs.stage_one(config, env.spec, TASKS), learner, player, Experience(config, env.spec, tasks, CPU)


@pytest.mark.parametrize("world", WORLDS)
def test_of_learners_and_an_unroll(world: str) -> None:
    found, learner, player, _ = stage_one(load_config([*WORLDS[world], "source.unroll_length=10"]))
    assert size(found, "an unroll") == bytes_of(player.play()[0])
    parameters = [parameter for _, parameter in learner.parameters()]
    assert size(found, "networks and Adam's state") == 4 * bytes_of(parameters)


@pytest.mark.parametrize("source", ["dqn", "q_learning"])
def test_of_values_and_replay(source: str) -> None:
    replay = (
        "source.whole_replay_buffer_training=false",
        "source.clear_replay_buffer=false",
        "source.mini_batch_size=7",
    )
    options = [f"source={source}", *ROOM, *replay, "source.replay_buffer_length=50", "source.initial_collect_steps=80"]
    found, learner, player, experience = stage_one(load_config(options))
    parameters = [parameter for _, parameter in learner.parameters()]
    copies, what = (5, "networks and Adam's state") if source == "dqn" else (1, "tables of values")
    assert size(found, what) == copies * bytes_of(parameters)
    kept = experience.state_dict()["replay"]["columns"]
    assert 0.5 * bytes_of(kept.values()) <= size(found, "what is kept to learn from") <= bytes_of(kept.values())
    batches = list[Tensor]()
    for iteration in range(1, 80):
        for _, sample in experience.samples(iteration, player.play()[0], learner.targets):
            batches = [*sample.rollout]
    assert size(found, "a mini-batch") == bytes_of(batches) > 0


def test_of_histories_and_what_waits_to_be_written(tmp_path: Path) -> None:
    config = load_config(
        [*ROOM, f"root={tmp_path}", "checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2"]
    )
    spec, rows = make_env(config.env, CPU).spec, TASKS * 2 * 4
    disk = needs.histories(config, spec, TASKS).size
    assert disk == rows * 50 * 8  # a byte for each column
    found = needs.stage_one(config, spec, TASKS)
    assert size(found, "what was played since the last checkpoint") == rows * 2 * config.source.unroll_length * 8
    once = replace(config, checkpoints=replace(config.checkpoints, checkpoint_interval=0))
    found = needs.stage_one(once, spec, TASKS)
    assert size(found, "what was played since the last checkpoint") == rows * 100 * 8


def saved_by(model: nn.Module, window: tuple[Tensor, ...]) -> int:
    """Bytes that autograd keeps for the gradient, but for parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)
        return tensor

    held: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(context_of(SPEC, *window))
    return sum(kept.values())


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("induction", [True, False])
@pytest.mark.parametrize("tokens", ["transition", "interleaved", "cross"])
def test_of_fitting_a_model(tokens: str, induction: bool, checkpointing: bool) -> None:
    """Parameters, gradients and Adam's state to the byte; of activations no more than autograd keeps, and half of it
    where no attention weights are in it."""
    form = {"tokens": tokens, "induction": induction, "num_layers": 4, "embed_dim": 32, "ff_dim": 64, "context_len": 16}
    trainer = {"mini_batch_size": 8, "activation_checkpointing": checkpointing}
    config = config_of(model=form, trainer=trainer)
    model = GPT(config.model, SPEC, checkpointing).train()
    window = tuple(torch.randint(3, (8, 16)) for _ in range(4))
    found = needs.fitting_gpt(config, SPEC, 1)
    activations, kept = size(found, "activations of a batch"), saved_by(model, window)
    assert activations <= kept
    assert activations >= kept / 3 or induction
    optimizer = make_optimizer(model, config.optimizer)
    model(context_of(SPEC, *window)).sum().backward()
    optimizer.step()
    state = [value for of_one in optimizer.state.values() for value in of_one.values() if value.numel() > 1]
    exact = bytes_of(model.parameters()) * 2 + bytes_of(state)
    assert size(found, "parameters, gradients and the optimizer's state") == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("trunk_learns", ["full", "none"])
def test_of_fitting_a_critic(trunk_learns: str) -> None:
    """To the byte where all of it is trained; else less."""
    config = config_of(critic={"value_trunk_grad": trunk_learns})
    critic = fresh_critic(config, SPEC)
    found = needs.fitting_critic(config, trunk_config(config.model, config.encoder), SPEC, 1)
    trained = [parameter for parameter in critic.parameters() if parameter.requires_grad]
    exact = bytes_of(critic.parameters()) + 3 * bytes_of(trained)
    said = size(found, "parameters, gradients and the optimizer's state")
    assert said == exact if trunk_learns == "full" else said <= exact
    assert any(need.what == "activations of a batch" for need in found) == (trunk_learns == "full")


@pytest.mark.parametrize("tokens", ["transition", "cross"])
def test_of_playing_in_context(tokens: str) -> None:
    config = config_of(model={"tokens": tokens, "num_layers": 2, "context_len": 32})
    model, streams, episodes = GPT(config.model, SPEC), 6, 100
    found = needs.playing(config, config.model, SPEC, streams, episodes, CPU, ("evaluation.num_streams",))
    cache = model.new_cache(streams).tokens
    assert size(found, "keys and values of the context") == bytes_of([cache.keys, cache.values])
    window = windows_of(*(torch.zeros(streams, 32, dtype=torch.long) for _ in range(4)))
    assert size(found, "the context") == bytes_of([window])
    assert size(found, "what is played") == streams * 128 * 50  # 100 steps at least, in blocks of 64


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_of_players(optimizer: str) -> None:
    """Both sides' networks, transitions and first rollouts."""
    idle = ["adam_beta1=0", "adam_beta2=0"] if optimizer == "sgd" else []
    options = [f"{role}.{option}" for role in ("host", "agent") for option in (f"optimizer={optimizer}", *idle)]
    config = load_players_config(["players=tiny", "device=cpu", *options])
    found = needs.players(config)
    learners = make_players(config, Stopwatch(active=False, device=CPU), CPU)
    said = [need.size for need in found if need.what == "networks and the optimizer's state"]
    states = 2 if optimizer == "adam" else 0
    exact = [bytes_of(learner.network.parameters()) * (3 + states) for learner in learners.values()]
    assert said == exact
    columns = [learner.replay._columns for learner in learners.values()]
    kept = [bytes_of([one.observation, one.next_observation]) for one in columns]
    assert [need.size for need in found if need.what == "transitions"] == kept


def test_defaults_are_far_from_any_limit() -> None:
    """A machine of 4 GB runs every default."""
    config = load_config()
    spec = make_env(config.env, CPU).spec
    trunk = trunk_config(config.model, config.encoder)
    for found in (
        needs.stage_one(config, spec, config.tasks.num_train),
        needs.fitting_gpt(config, spec, 1),
        needs.fitting_critic(config, trunk, spec, 1),
        needs.evaluation_amid(config, config.model, spec, 80, CPU),
        needs.playing(config, config.model, spec, 20 * config.evaluation.num_streams, 40, CPU, ()),
        [needs.bootstrap(config, 80)],
        needs.players(load_players_config()),
    ):
        assert sum(need.size for need in found) < 2 * 10**9
