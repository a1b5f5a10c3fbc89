"""Estimated needs equal the allocated bytes, or less."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from small_models import SPEC, config_of
from torch import Tensor, nn

from icrl import extensions
from icrl.app.compose import load_config
from icrl.collection.collect import LocalUnrollWorker, make_learners
from icrl.collection.experience import Experience, make_experience
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.nn.gpt import GPT, Window, context_of
from icrl.runs.device import Need
from icrl.training import needs
from icrl.training.optimizers import make_optimizer

CPU, TASKS = torch.device("cpu"), 3
SMALL = (
    *("model.context_len=10", "data.kept_steps=0", "data.num_development_tasks=1", "evaluation.num_episodes=2"),
    *("source.num_learners=2", "source.num_envs=4", "source.num_env_steps=400", "source.history_steps=200"),
)
ROOM = ("env.size=3", "tasks.num_train=3", "env.max_episode_steps=6", *SMALL)
BRIEF = ("env.max_episode_steps=9", "source.hidden_size=8", *SMALL)
VECTORS = ("env=gymnasium_pendulum", *BRIEF)
SOFT = (*VECTORS, "source=sac", "source.initial_collect_steps=40")
WORLDS = {"room": ROOM}
WORLDS |= {"vectors": VECTORS} if {"from_gymnasium", "vectors"} <= {*extensions.NAMES} else {}
WORLDS |= {"soft": SOFT} if {"from_gymnasium", "sac"} <= {*extensions.NAMES} else {}
STATE = "parameters, gradients and the optimizer's state"


def size(found: list[Need], what: str) -> int:
    return next(need.size for need in found if need.what == what)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def stage_one(*options: str) -> tuple[list[Need], Any, Any, Experience]:
    config = load_config(options)
    env = make_env(config.env, CPU)
    tasks = env.all_tasks()[:TASKS]
    learner, streams, noise = make_learners(config, env, tasks, CPU)
    worker = LocalUnrollWorker(config.source, env, learner, streams, noise)
    return needs.stage_one(config, env.spec, TASKS), learner, worker, make_experience(config, env.spec, tasks, CPU)


@pytest.mark.parametrize("world", WORLDS)
def test_learners_and_an_unroll(world: str) -> None:
    found, learner, worker, _ = stage_one(*WORLDS[world], "source.unroll_length=10")
    assert size(found, "an unroll") == bytes_of(worker.play()[0])
    targets = bytes_of(learner.target.parameters()) if world == "soft" else 0
    assert size(found, "networks and Adam's state") == 4 * bytes_of(dict(learner.parameters()).values()) + targets


@pytest.mark.parametrize("source", ["dqn", "q_learning"])
def test_values_and_replay(source: str) -> None:
    replay = ("whole_replay_buffer_training=false", "clear_replay_buffer=false", "mini_batch_size=7")
    options = [f"source.{option}" for option in (*replay, "replay_buffer_length=50", "initial_collect_steps=80")]
    found, learner, worker, experience = stage_one(f"source={source}", *ROOM, *options)
    copies, what = (5, "networks and Adam's state") if source == "dqn" else (1, "Q-tables")
    assert size(found, what) == copies * bytes_of(dict(learner.parameters()).values())
    assert experience._replay
    kept = bytes_of(experience._replay._columns)
    assert 0.5 * kept <= size(found, "replay") <= kept
    unrolls = ((iteration, worker.play()[0]) for iteration in range(1, 80))
    samples = [sample for unroll in unrolls for _, sample in experience.samples(*unroll, learner.targets)]
    assert size(found, "a mini-batch") == bytes_of(samples[-1].rollout) > 0


def test_histories_and_steps_between_checkpoints(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    spacing = ["checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2"]
    config = load_config([*ROOM, f"root={tmp_path}", *spacing])
    spec, rows = make_env(config.env, CPU).spec, TASKS * 2 * 4
    once = replace(config, checkpoints=replace(config.checkpoints, checkpoint_interval=0))
    for one, steps in ((config, 2 * config.source.unroll_length), (once, 100)):
        assert size(needs.stage_one(one, spec, TASKS), "steps between checkpoints") == rows * steps * 8
    disk = rows * 50 * 8  # a byte for each column
    monkeypatch.setattr(needs, "free_disk", lambda _: disk)
    needs.check_stage_one(config, spec, TASKS, CPU)
    monkeypatch.setattr(needs, "free_disk", lambda _: disk - 1)
    with pytest.raises(ConfigError, match=r"tasks.num_train=3 x .* x source.history_steps=200 needs .* for histories"):
        needs.check_stage_one(config, spec, TASKS, CPU)


def saved_by(model: nn.Module, window: Window) -> int:
    """Bytes that autograd keeps for the gradient, without parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held = list[Tensor]()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: held.append(tensor) or tensor, lambda tensor: tensor):
        model(context_of(window))
    kept = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    return sum(size for address, size in kept.items() if address not in own)


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("induction", [True, False])
@pytest.mark.parametrize("tokens", ["transition", "interleaved", "cross"])
def test_training_a_model(tokens: str, induction: bool, checkpointing: bool) -> None:
    """Exact state; at most the activations that autograd keeps, and a third of them without attention weights."""
    form = {"tokens": tokens, "induction": induction, "num_layers": 4, "embed_dim": 32, "ff_dim": 64, "context_len": 16}
    trainer = {"mini_batch_size": 8, "activation_checkpointing": checkpointing}
    config = config_of(model=form, trainer=trainer)
    model = GPT(config.model, SPEC, checkpointing).train()
    obs, action, reward, timestep = (torch.randint(3, (8, 16)) for _ in Window._fields)
    window = Window(obs, action, reward.float(), timestep)
    luck = torch.get_rng_state()
    found = needs.gpt_training(config, SPEC, 1)
    assert torch.equal(torch.get_rng_state(), luck)
    activations, kept = size(found, "activations of a batch"), saved_by(model, window)
    assert activations <= kept and (induction or activations >= kept / 3)
    optimizer = make_optimizer(model, config.optimizer)
    model(context_of(window)).sum().backward()
    optimizer.step()
    state = [value for of_one in optimizer.state.values() for value in of_one.values() if value.numel() > 1]
    assert size(found, STATE) == bytes_of(model.parameters()) * 2 + bytes_of(state)


@pytest.mark.parametrize("form", [{"tokens": "transition"}, {"tokens": "cross"}, {"num_kv_heads": 1}])
def test_playing_in_context(form: dict[str, Any]) -> None:
    config = config_of(model={"num_layers": 2, "context_len": 32} | form)
    found = needs.playing(config, config.model, SPEC, 6, 100, CPU, ("evaluation.num_streams",))
    cache = GPT(config.model, SPEC).new_cache(6)[0].columns
    assert size(found, "the cache of the context") == bytes_of(cache)
    assert size(found, "the rollout") == 6 * 128 * 46  # 100 steps at least, in blocks of 64


def test_a_machine_of_4_gb_runs_every_default() -> None:
    config = load_config()
    spec = make_env(config.env, CPU).spec
    for found in (
        needs.stage_one(config, spec, config.tasks.num_train),
        needs.gpt_training(config, spec, 1),
        needs.playing(config, config.model, spec, 80 * 8, 16, CPU, needs.EVALS),
        needs.playing(config, config.model, spec, 20 * config.evaluation.num_streams, 40, CPU, ()),
        [needs.bootstrap(config, 80)],
    ):
        assert sum(need.size for need in found) < 2 * 10**9
