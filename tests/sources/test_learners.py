"""The contract that all learning sources keep: found by name, independent of each other, restorable, and they learn."""

import probes
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import SPEC, START, learn_from, learners_of, random_rollout, restored, step_of

from icrl.contracts import ConfigError
from icrl.randomness import cumulative, draw, draw_possible
from icrl.sources import source_class, source_options
from icrl.sources.learners import Learner

FALLING = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [1, 0.0]]}
# Of each source: options with which it learns fast, unroll and updates for it, and options of a restored run.
KINDS = {
    "a2c": ({"learning_rate": 0.02}, 5, 12, {"entropy_coefficient": FALLING}),
    "a3c": ({"learning_rate": 0.02}, 5, 12, {"entropy_coefficient": FALLING}),
    "ppo": ({"learning_rate": 0.02}, 5, 12, {}),
    "dqn": ({"learning_rate": 0.02, "epsilon": 0.3}, 2, 30, {"epsilon": FALLING}),
    "q_learning": ({"epsilon": 0.3}, 2, 30, {"epsilon": FALLING}),
}
KINDS = {name: kind for name, kind in KINDS.items() if name in source_options()}  # of extensions that are installed
every_kind = pytest.mark.parametrize("name", KINDS)


@every_kind
def test_a_learner_alone_equals_itself_among_others(name: str) -> None:
    options, length, updates, _ = KINDS[name]
    lone, all_learners = probes.alone_and_among_others(name, length, updates, **options)
    for index, one in lone.items():
        for (_, ours), (_, theirs) in zip(one.parameters(), all_learners.parameters(), strict=True):
            assert torch.allclose(ours[0], theirs[index], atol=1e-5)


@every_kind
def test_a_restored_learner_goes_on_as_the_saved_one(name: str) -> None:
    options = KINDS[name][3]
    first, step, noise = learners_of(name, 2, **options), step_of(torch.arange(4)), torch.linspace(0, 0.999, 4)
    for update in range(3):
        first.set_clock(START._replace(percent=0.8))
        learn_from(first, random_rollout(4, 4, update))
    second = restored(first, learners_of(name, 2, seed=1, **options))
    for update in range(3, 8):
        assert torch.equal(first.action_probabilities(step), second.action_probabilities(step))
        assert torch.equal(first.act((), step, noise)[0], second.act((), step, noise)[0])
        for learner in (first, second):
            learner.set_clock(START._replace(percent=0.8, iterations=update))
            learn_from(learner, random_rollout(4, 4, update))
    second.load_state_dict({key: part for key, part in first.state_dict().items() if key != "clock"})  # an older one
    for (_, ours), (_, theirs) in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@every_kind
def test_parameters_and_outputs(name: str) -> None:
    """Parameters with the learners first; outputs for every observation, learner by learner, without gradient."""
    learners, played = learners_of(name, 2), random_rollout(3, 4, 0)
    learn_from(learners, played)
    named, outputs = dict(learners.parameters()), learners.outputs()
    assert all(len(parameter) == 2 for parameter in named.values())
    table = named["table"] if name == "q_learning" else learners.network()
    assert not any(values.requires_grad for values in outputs.values())
    if "q_values" in outputs:
        assert torch.equal(outputs["q_values"], table.flatten(0, 1)) and learners.targets(played) == {}
    else:
        assert torch.allclose(outputs["log_policy"], table[..., :-1].log_softmax(-1).reshape(12, 3))
        assert torch.allclose(outputs["values"], table[..., -1].reshape(12))


@pytest.mark.parametrize("name", [name for name in ("a2c", "q_learning") if name in KINDS])
def test_act_samples_the_probabilities(name: str) -> None:
    """An even grid of noise turns probabilities into counts, for each learner its own; also after an update."""
    count, learners = 4000, learners_of(name, 2, learning_rate=0.5)
    learn_from(learners, random_rollout(3, 4, 0))
    noise = ((torch.arange(count) + 0.5) / count).repeat(2)
    for obs in range(SPEC.num_obs):
        probabilities = learners.action_probabilities(step_of(torch.full((2,), obs)))
        action, carry = learners.act(learners.initial_carry(2 * count), step_of(torch.full((2 * count,), obs)), noise)
        shares = torch.nn.functional.one_hot(action.view(2, count), 3).float().mean(1)
        assert carry == () and torch.allclose(shares, probabilities, atol=2 / count)


@pytest.mark.parametrize("name", [name for name in ("a2c", "q_learning") if name in KINDS])
def test_threads_do_not_change_an_update(name: str) -> None:
    """As many learners as the default run has, where a gradient summed by threads would depend on their order."""
    seen, threads = set(), torch.get_num_threads()
    torch.set_num_threads(2)
    for _ in range(3):
        learners = learners_of(name, 570, **{"hidden_size": 64} if name == "a2c" else {})
        learn_from(learners, random_rollout(10, 5700, 0))
        seen.add(tuple(parameter.sum(dtype=torch.float64).item() for _, parameter in learners.parameters()))
    torch.set_num_threads(threads)
    assert len(seen) == 1


FAST = {  # updates, and options with which values are learned in them
    "a2c": (110, {"learning_rate": 0.1}),
    "a3c": (110, {"learning_rate": 0.1}),
    "ppo": (110, {"learning_rate": 0.1, "max_gradient_norm": 5.0}),
    "dqn": (110, {"learning_rate": 0.1, "epsilon": 1.0, "target_update_rate": 0.2}),
    "q_learning": (100, {"epsilon": 1.0}),
}


@every_kind
def test_values_of_probe_worlds(name: str) -> None:
    """The last step is worth 1; two are discounted by 1/2; a truncated episode bootstraps: 1 + 1/2 + 1/4 + ... = 2,
    although it is two steps long. In a world that asks for one action per observation, that action is learned."""
    updates, options = FAST[name]
    worth = {"TWO_STEPS": [0.5, 1.0], "ENDLESS": [2.0], "MATCH_IT": [1.0, 1.0]}
    for world, expected in worth.items():
        env = getattr(probes, world)
        learner = probes.learn_world(learners_of(name, 1, env.spec, discount=0.5, **options), env, updates)
        outputs = learner.outputs()
        values = outputs["values"] if "values" in outputs else outputs["q_values"].amax(-1)
        assert values.tolist() == pytest.approx(expected, abs=0.05)
    if "log_policy" in outputs:
        assert outputs["log_policy"].exp().diagonal().min() > 0.95
    else:
        assert torch.allclose(outputs["q_values"], torch.eye(2), atol=0.02)


def test_what_is_unknown_and_streams_that_cannot_be_dealt_out_evenly_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"source\.name=nobody is unknown: it must be one of a2c"):
        source_class("nobody")
    with pytest.raises(ValueError, match="4 streams cannot be divided evenly among 3 learners"):
        learners_of("a2c", 3).initial_carry(4)
    with pytest.raises(ValueError, match="4 streams cannot be divided evenly among 3 learners"):
        learners_of("a2c", 3).action_probabilities(step_of(torch.arange(4)))


NOISE = torch.tensor([0.0, 2**-24, 0.25, 0.5, 0.75, 1 - 2**-12, 1 - 2**-23, 1 - 2**-24])


WEIGHTS = st.floats(0, 1e30) | st.floats(0, 1e-30) | st.just(0.0)


@settings(max_examples=100)
@given(st.lists(WEIGHTS, min_size=1, max_size=40), st.sampled_from([1.0, 0.9999999, 1 - 2**-20]))
def test_impossible_actions_are_not_drawn(weights: list[float], scale: float) -> None:
    """Also if the probabilities add up to less than the highest noise, where plain `draw` fails."""
    whole = torch.tensor([*weights, 1.0], dtype=torch.float64)
    probabilities = (scale * whole / whole.sum()).float().roll(len(weights) // 2)
    drawn = draw_possible(probabilities.expand(len(NOISE), -1), NOISE)
    assert (probabilities[drawn] > 0).all()
    assert drawn.dtype == torch.long and drawn.tolist() == sorted(drawn.tolist())
    rounded = torch.tensor([[0.0, 0.3333333, 0.3333333, 0.3333333, 0.0, 0.0]])
    assert draw(cumulative(rounded), NOISE[-1:]).tolist() == [5] and draw_possible(rounded, NOISE[-1:]).tolist() == [3]


def test_what_a_source_of_ones_own_gives_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probabilities in its first unroll; and, without a network, the numbers that it saves as its parameters."""
    learners, step, noise = learners_of("a2c", 2), step_of(torch.arange(4)), torch.full((4,), 0.5)
    for wrong in (torch.ones(4, 5) / 5, torch.ones(4, 3), torch.full((4, 3), torch.nan)):
        monkeypatch.setattr(learners, "action_probabilities", lambda _, given=wrong: given)
        learners.set_clock(START)
        with pytest.raises(
            ConfigError, match=r"A2C\.action_probabilities: shape .* must be of shape \(4, 3\) and sum 1"
        ):
            Learner.act(learners, (), step, noise)
    learners.set_clock(START._replace(iterations=1))
    Learner.act(learners, (), step, noise)  # not checked any more
    for name, value in {"network": None, "saved": ("table", "count"), "table": torch.arange(40.0), "count": 3}.items():
        monkeypatch.setattr(learners, name, value, raising=False)
    assert {name: part.tolist() for name, part in learners.parameters()} == {"table": [[*range(20)], [*range(20, 40)]]}
