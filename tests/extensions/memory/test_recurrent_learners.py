"""Actor-critics with a memory: a world that needs one, a plain GRU, what is recomputed, independence, resuming."""

from typing import Any

import pytest
import torch
from installed import worlds
from probes import check_alone_and_among_others, learn_world, learners_of
from stage_one import check_goes_on
from torch import Tensor, nn
from vector_probes import BUTTONS, VectorProbe

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.sources.collect import SampledOrGreedy

every_kind = pytest.mark.parametrize("kind", ["a2c", "a3c", "ppo"])
LENGTH = 4


class Cue(VectorProbe):
    """World that shows a sign in the first of `LENGTH` steps, and pays 1 for the button of that sign in the last."""

    def __init__(self) -> None:
        super().__init__(BUTTONS, self._judge, varied=True)

    def _judge(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        last = x[:, 1] == LENGTH - 1
        paid = last & ((x[:, 0] > 0) == (action > 0))
        return torch.stack([x[:, 0], x[:, 1] + 1], dim=1), paid.float(), last

    def observe(self, inner: Tensor) -> Tensor:
        sign, time = inner.unbind(-1)
        return torch.stack([sign.sign() * (time == 0), time], dim=-1)


CUE = Cue()


def played(learner: Any, env: Any, num_steps: int, num_streams: int, carry: Any = None) -> tuple[Rollout, Any]:
    streams = start_streams(learner, env, torch.zeros(num_streams, 1), stream_seeds(5, num_streams))
    if carry is not None:
        streams = streams._replace(carry=carry)
    return rollout(learner, env, streams, num_steps, Noise(stream_seeds(6, num_streams)))


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_a_memory_solves_a_world_that_needs_one(kind: str) -> None:
    """Sampled, and with the most probable actions, as in evaluations during training."""
    options: dict[str, Any] = {"hidden_size": 16, "learning_rate": 0.03, "discount": 0.9, "entropy_coefficient": 0.0}
    success = dict[str, list[float]]()
    for body in ("mlp", "gru"):
        learner = learn_world(learners_of(kind, 1, CUE.spec, body=body, **options), CUE, 40, 2 * LENGTH, 32)
        for policy in (learner, SampledOrGreedy(learner, 0.0)):
            transitions, _ = played(policy, CUE, 10 * LENGTH, 64)
            success.setdefault(body, []).append(float(transitions.reward[transitions.terminated].mean()))
    read = learner.network.body.observed, learner.network.returns  # in whose deviations it reads and learns
    assert [moments.count.item() for moments in read] == [40 * 2 * LENGTH * 32] * 2
    assert min(success["gru"]) > 0.95 and 0.3 < min(success["mlp"]) <= max(success["mlp"]) < 0.7


@every_kind
def test_what_is_recomputed_equals_what_was_played(kind: str) -> None:
    """From the memory in the middle of an episode, over the ends of episodes, up to rounding; windows that begin later
    start with the memory recorded there."""
    learner = learners_of(kind, 2, CUE.spec, body="gru")
    _, streams = played(learner, CUE, 3, 4)
    carries, steps, carry = list[Tensor](), list[Tensor](), streams.carry
    state, step = streams.state, streams.step
    for noise in Noise(stream_seeds(7, 4)).draw(9):
        seen, _ = learner.remember(carry, step)
        carries.append(carry)
        steps.append(seen.obs)
        action, carry = learner.act(carry, step, noise)
        state, step = CUE.step(state, action)
    unroll, _ = rollout(learner, CUE, streams, 9, Noise(stream_seeds(7, 4)))
    memory = learner.targets(unroll, streams.carry)["memory"]
    torch.testing.assert_close(memory, torch.stack(carries), rtol=0, atol=1e-6)
    for start in (0, 2, 5):
        again = learner.heads.unroll(unroll.obs[start:], unroll.timestep[start:], memory[start])
        torch.testing.assert_close(again, torch.stack(steps[start:]), rtol=0, atol=1e-6)
    ahead = learner.heads.ahead(torch.stack(steps), unroll.next_obs)
    going_on = ~(unroll.terminated | unroll.truncated)[:-1]
    torch.testing.assert_close(ahead[:-1][going_on], torch.stack(steps)[1:][going_on], rtol=0, atol=1e-6)


def test_states_equal_those_of_a_plain_gru() -> None:
    """PyTorch's GRU, episode by episode, on observations normalised by hand."""
    learner, seen = learners_of("ppo", 3, CUE.spec, body="gru"), torch.randn(6, 6, 2)
    body, timestep = learner.network.body, torch.tensor([2, 3, 0, 1, 2, 0])[:, None].expand(6, 6)
    body.observe(seen)
    start = torch.randn(6, 8)
    states = learner.heads.unroll(seen, timestep, start)
    for k in range(3):
        own = seen[:, 2 * k : 2 * k + 2]
        mean, deviation = own.flatten(0, 1).mean(0), (own.flatten(0, 1).var(0, correction=0) + 1e-8).sqrt()
        gru = nn.GRU(8, 8)
        gru.weight_ih_l0.data, gru.bias_ih_l0.data = body.inputs.weights[1][k].T, body.inputs.biases[1][k, 0]
        gru.weight_hh_l0.data, gru.bias_hh_l0.data = body.recurrent.weights[0][k].T, body.recurrent.biases[0][k, 0]
        embedded = ((own - mean) / deviation @ body.inputs.weights[0][k] + body.inputs.biases[0][k]).tanh()
        before, parts = start[None, 2 * k : 2 * k + 2], list[Tensor]()
        for first, end in ((0, 2), (2, 5), (5, 6)):
            found, _ = gru(embedded[first:end], before)
            parts.append(found)
            before = torch.zeros_like(before)
        torch.testing.assert_close(states[:, 2 * k : 2 * k + 2], torch.cat(parts), rtol=1e-4, atol=1e-5)


@every_kind
def test_a_learner_learns_the_same_alone(kind: str) -> None:
    check_alone_and_among_others(kind, CUE, body="gru")


@pytest.mark.parametrize("world", worlds("cart_pole", "gymnasium_cart_pole")[:1])
def test_a_run_goes_on_with_the_same_bits(world: str) -> None:
    """Stopped in the middle of episodes, with windows shorter than the unroll."""
    options = [f"env={world}", "source=ppo", "source.body=gru", "source.hidden_size=8"]
    options += ["source.num_learners=1", "source.num_envs=2", "source.unroll_length=8", "source.mini_batch_length=4"]
    config = load_config([*options, "source.num_env_steps=1200", "source.history_steps=1200"])
    check_goes_on(config, make_env(config.env), 6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["source=a3c", "source.body=gru"], "async_unroll"),
        (["source=ppo_vectors", "source.body=gru"], "mini_batch_length=1"),
    ],
)
def test_refusals(options: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_config(options)
