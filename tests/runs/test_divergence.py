"""Training that loses its numbers ends at once, says where, and leaves what it had before."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import toy
from harness import run as run_stage
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import CPU, config_of, curves, doing, left_in, model_of, run, steps_of, use_worker_here

from icrl.app.compose import load_config
from icrl.contracts import Batch
from icrl.data.history_store import read_manifest
from icrl.envs import make_env
from icrl.recording import record
from icrl.runs.divergence import DivergedError, Watch, bad_rows
from icrl.sources import source_options
from icrl.sources.collect import UnrollWorker, collect, make_experience, make_learners
from icrl.training.policy_gradient import PolicyGradient

PLACES = st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 2))  # update, name, row


@settings(max_examples=50)
@given(spoiled=st.dictionaries(PLACES, st.sampled_from([math.nan, math.inf, -math.inf])))
def test_the_first_bad_update_is_found_with_what_is_bad_in_it(spoiled):
    watch, noted = Watch(), [{name: torch.arange(3.0) for name in "ab"} for _ in range(6)]
    for (update, name, row), value in spoiled.items():
        noted[update][name][row] = value
    for update, values in enumerate(noted):
        watch.record(update, values)
    first, bad = watch.first_bad() or (None, {})
    assert first == min((update for update, _, _ in spoiled), default=None)
    named = {(first, name, int(row)) for name, where in bad.items() for row in where.nonzero()[:, 0]}
    assert named == {place for place in spoiled if place[0] == first}
    watch.record(9999, {"a": torch.zeros(3)})
    assert watch.first_bad() is None  # what was looked at is forgotten


def test_updates_without_metrics_have_nothing_bad():
    watch = Watch()
    watch.record(1, {})
    assert watch.first_bad() is None


def test_rows_are_those_of_any_parameter_also_of_one_number_a_learner():
    parameters = {"weight": torch.ones(3, 2, 2), "temperature": torch.ones(3)}
    parameters["weight"][0, 1, 1], parameters["temperature"][2] = math.nan, math.inf
    assert bad_rows(parameters.items()).tolist() == [True, False, True]


def spoiling(model: torch.nn.Module, at: int, how: str) -> Callable[[int], Batch]:
    """Batches; in update `at` (from 0), and in no other, the loss or only the gradient is infinite."""

    def spoil() -> None:
        place = model[4].weight.register_hook if how == "gradient" else model.register_forward_hook
        hook = place(lambda *given: hook.remove() or given[-1] * torch.inf)

    return doing(spoil, at)


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"optimizer": {"name": "sgd"}, "trainer": {"gradient_accumulation_steps": 2}}, "loss"),
        ({"device": {"amp_dtype": "bfloat16"}}, "gradient"),
    ],
)
def test_training_stops_within_a_bounded_number_of_updates(tmp_path, changes, how):
    """Where no point, no evaluation and no checkpoint is due; and names the update that it was."""
    trainer = {"num_iterations": 90, "evaluate": False} | changes.get("trainer", {})
    never = {"summaries": {"num_summaries": 0, "summary_interval": 0}, "checkpoints": {"checkpoint_interval": 0}}
    config = config_of(**changes | never | {"trainer": trainer})
    model, asked = model_of(0), []
    batches = spoiling(model, 40, how)
    broken = "loss, gradient_norm" if how == "loss" else "gradient_norm"
    with pytest.raises(DivergedError, match=rf"train_gpt, in update 41: {broken} not finite.*optimizer\.learning_rate"):
        run(tmp_path, config, model, lambda update: asked.append(update) or batches(update))
    assert 40 < len(asked) <= 41 + 32
    assert not steps_of(tmp_path)


def test_what_helps_trials_is_their_own_learning_rate(tmp_path, monkeypatch):
    """The options of `optimizer` have no effect on them."""
    monkeypatch.setattr(toy.Naming, "rates", PolicyGradient.rates, raising=False)
    model = model_of(0)
    with pytest.raises(DivergedError, match=r"Under another name=, a lower finetune\.learning_rate may help$"):
        run(tmp_path, model=model, batches=spoiling(model, 1, "loss"))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_nothing_of_it_is_saved_evaluated_or_shown_and_it_ends_so_again(tmp_path, monkeypatch, asynchronous):
    """Checkpoints after updates 3, 6, ..., evaluations after 2, 4, ..., snapshots after 2, 4, ...; update 6 is bad.
    Once it is good, the same command ends as an undisturbed run."""
    use_worker_here(monkeypatch)
    config = config_of(checkpoints={"snapshot_interval": 16}, evals={"async_eval": asynchronous})
    messages, left = [], []
    for seed in (0, 99):
        model = model_of(seed)
        with pytest.raises(DivergedError) as caught:
            run(tmp_path, config, model, spoiling(model, 5, "loss"))
        messages.append(str(caught.value))
        left.append(left_in(tmp_path))
        assert steps_of(tmp_path) == [3] and steps_of(tmp_path, "snapshot") == [2, 4]
        for kind in ("last", "best", "pending", "snapshot"):
            for step in steps_of(tmp_path, kind):
                state = torch.load(tmp_path / f"{kind}-{step:09d}.pt", weights_only=True)
                assert step <= 5 and all(value.isfinite().all() for value in state["model"].values())
        assert [step for step, _ in curves(tmp_path)["train/loss"]] == [1, 2, 3, 4, 5]
        assert not [*tmp_path.glob("crash-*")]
    assert messages[0] == messages[1] and "in update 6: loss, gradient_norm not finite" in messages[0]
    assert left[0]["last"] == left[1]["last"] and left[0]["points"] == left[1]["points"]
    run(tmp_path, config, model_of(99))
    run(tmp_path / "undisturbed", config, model_of(0))
    assert left_in(tmp_path) == left_in(tmp_path / "undisturbed")


def test_parameters_that_overflow_are_not_saved(tmp_path):
    """By a step of a finite gradient."""
    optimizer = {"name": "sgd", "learning_rate": 3e38, "max_gradient_norm": 1e6}
    config = config_of(optimizer=optimizer, trainer={"evaluate": False}, checkpoints={"checkpoint_interval": 1})
    model = model_of(0)
    model[4].weight.register_hook(lambda gradient: gradient * 1000)
    with pytest.raises(DivergedError, match=r"train_gpt, after update 1: parameters not finite"):
        run(tmp_path, config, model)
    assert not steps_of(tmp_path)


def test_with_float16_an_infinite_gradient_is_no_end_and_an_infinite_loss_is(tmp_path):
    config = config_of(device={"amp_dtype": "float16"}, trainer={"evaluate": False})
    model = model_of(0)
    run(tmp_path / "gradient", config, model, spoiling(model, 4, "gradient"))
    assert steps_of(tmp_path / "gradient") == [9, 11]
    model = model_of(0)
    with pytest.raises(DivergedError, match=r"in update 5: loss not finite.*device\.amp_dtype=bfloat16 or a lower"):
        run(tmp_path / "loss", config, model, spoiling(model, 4, "loss"))
    assert steps_of(tmp_path / "loss") == [3]


SMALL = ("env.size=4", "env.max_episode_steps=6", "source.num_learners=2", "source.num_envs=2", "device=cpu")
ACTOR_CRITIC, DEEP = {"policy_loss", "value_loss", "gradient_norm"}, {"td_error", "loss", "gradient_norm"}


DIVERGING = [*((name, ACTOR_CRITIC) for name in ("a2c", "a3c", "ppo")), ("q_learning", {"td_error"}), ("dqn", DEEP)]


@pytest.mark.parametrize(("source", "broken"), [one for one in DIVERGING if one[0] in source_options()])
def test_source_agents_that_diverge_are_named(source, broken):
    """Learner 1 of the second of two tasks; nothing of its iteration is given to be recorded."""
    config = load_config([f"source={source}", *SMALL])
    env = make_env(config.env)
    tasks = env.all_tasks()[[3, 12]]
    learner, streams, noise = make_learners(config, env, tasks, CPU)
    player = UnrollWorker(config.source, env, learner, streams, noise)
    loop = collect(learner, player, make_experience(config, env.spec, tasks, CPU))
    metrics = next(metrics for _, metrics, _ in loop if metrics)
    assert broken <= metrics.keys()
    state = learner.state_dict()
    for values in state.get("network", {"table": state.get("table")}).values():
        values.unflatten(0, (4, -1))[3] = torch.nan
    learner.load_state_dict(state)
    where = rf"source\.name={source}, in update \d+, learner 1 of task \[13\]: "
    with pytest.raises(DivergedError, match=where + r".* not finite.* source\.learning_rate may help") as caught:
        next(loop)
    named = str(caught.value).split(": ")[1].split(" not finite")[0].split(", ")
    assert broken <= set(named) <= metrics.keys()


def test_agents_whose_parameters_are_no_numbers_are_not_saved(tmp_path, monkeypatch):
    """After an iteration amid the run, where losses do not tell yet; the same command ends so again."""
    real = record.collect

    def spoiled(learner: Any, *arguments: Any) -> Iterator[Any]:
        for transitions, metrics, now in real(learner, *arguments):
            if int(now.state.episode.sum()) >= 25:  # as often as that was before
                learner.network.heads.data[2:4] = torch.nan
            yield transitions, metrics, now

    monkeypatch.setattr(record, "collect", spoiled)
    options = ("checkpoints.checkpoint_interval=1", "source.evaluate=false")
    found, again = (run_stage("train_agents", tmp_path, *options).refusal for _ in range(2))
    folder = tmp_path / "logs/tiny/source"
    saved = max(steps_of(folder))
    assert read_manifest(tmp_path / "histories/tiny")["committed"] == 5 * saved  # steps of an iteration
    assert not (folder / "finished.json").exists() and not [*folder.glob("crash-*")]
    for path in folder.glob("*-*.pt"):
        learner = torch.load(path, weights_only=True)["learner"]["network"]
        assert all(value.isfinite().all() for value in learner.values())
    where = f"source.name=a2c, after iteration {saved + 1} of 6, learner 0 of task ["
    assert found == again and found.startswith(where) and "(and 1 others of 5): parameters not finite" in found
