"""Actions as random vectors: the vectors, their use in the model, refused options, other sets of actions, learning."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from continued import check_continues
from gymnasium.spaces import Box
from harness import done, run
from models import outspoken
from policies import NUM_STREAMS, Recorded, assert_slow, play
from refusals import check_refusal, refusals
from small_models import CONFIG, SPEC
from torch import Tensor

from icrl import extensions
from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.extensions.action_vectors.vectors import VectorGPT, orthonormal, vectors_of
from icrl.nn.gpt import Window, context_of, make_gpt
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise, stream_seeds
from icrl.runs.files import read_json
from icrl.spaces import EnvSpec, discrete_spec

HEAD = "model.head=action_vectors"
MODEL = replace(CONFIG.model, head="action_vectors")
ROOM = replace(load_config().env, size=4, max_episode_steps=5, random_start=True)


def gpt(spec: EnvSpec = SPEC) -> VectorGPT:
    model = outspoken(make_gpt(MODEL, spec)).eval()
    assert isinstance(model, VectorGPT)
    return model


def window_of(spec: EnvSpec, num_windows: int = 3, length: int = 7) -> Window:
    generator = torch.Generator().manual_seed(0)
    highs = spec.num_obs, spec.num_actions, spec.num_rewards, spec.max_episode_steps
    obs, action, reward, timestep = (torch.randint(high, (num_windows, length), generator=generator) for high in highs)
    return Window(obs, action, spec.reward_of(reward), timestep)


def with_vectors(model: VectorGPT, vectors: Tensor) -> Callable[[Window], Tensor]:
    """The uncached logits of the model on a window whose actions have these `vectors` `[B, A, D]`."""

    def logits(window: Window) -> Tensor:
        with patch.object(model, "_vectors", lambda number: vectors), torch.no_grad():
            return model(context_of(window))

    return logits


def test_vectors_by_hand() -> None:
    """Gram and Schmidt: (0, 5) without its part along (3, 4) / 5 is (-2.4, 1.8)."""
    got = orthonormal(torch.tensor([[3.0, 0.0], [4.0, 5.0]]))
    assert torch.allclose(got, torch.tensor([[0.6, 0.8], [-0.8, 0.6]]), atol=1e-6)


def test_vectors_are_orthonormal_and_tell_nothing_of_their_actions() -> None:
    """Coordinates of each action have mean 0 and deviation 1 / sqrt(D)."""
    torch.manual_seed(0)
    vectors = gpt()._drawn(4000)  # [B, 4, 8]
    assert torch.allclose(vectors @ vectors.mT, torch.eye(4).expand(4000, 4, 4), atol=1e-5)
    assert vectors.mean(0).abs().max() < 0.03 and (vectors.std(0) - 8**-0.5).abs().max() < 0.02


def test_streams_keep_vectors_that_do_not_depend_on_their_number() -> None:
    model = gpt()
    few, many = (model.new_cache(number)[-1].columns[0][0] for number in (3, 5))
    assert torch.equal(few, many[:3]) and not torch.allclose(many[0], many[3])
    few = model.new_cache(2)
    few.replace(torch.tensor([1]), cache := model.new_cache(1))
    few.clear()
    assert torch.equal(few[-1].columns[0][0, 1], cache[-1].columns[0][0, 0])


@torch.no_grad()
def test_logits_and_embeddings_equal_a_scalar_reference() -> None:
    model, window = gpt(), window_of(SPEC, 1)
    vectors = orthonormal(torch.randn(1, 8, 4, generator=torch.Generator().manual_seed(1)))
    seen = []
    model.prev_action.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    model.policy_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    logits = with_vectors(model, vectors)(window)[0]
    embedded, emitted = (part[0].tolist() for part in seen)
    e, layer, none = vectors[0].tolist(), model.prev_action.encoder, model.prev_action.none.tolist()
    for t in range(7):
        read = e[window.action[0, t - 1]]
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        by_hand = [sum(w * x for w, x in zip(row, read, strict=True)) + bias for row, bias in rows]
        assert embedded[t] == pytest.approx(by_hand if t else none, abs=1e-5)
        similar = [sum(v * x for v, x in zip(emitted[t], one, strict=True)) for one in e]
        assert logits[t].tolist() == pytest.approx(similar, abs=1e-5)


def test_other_names_of_the_actions_change_nothing() -> None:
    model, window, order = gpt(), window_of(SPEC), torch.tensor([2, 0, 3, 1])
    vectors = model._drawn(3)
    renamed = window._replace(action=order.argsort()[window.action])
    got = with_vectors(model, vectors[:, order])(renamed)
    assert torch.allclose(got, with_vectors(model, vectors)(window)[..., order], atol=1e-5)


def test_cached_logits_equal_the_slow_reference_past_full_contexts() -> None:
    env = make_env(ROOM)
    policy = Recorded(gpt(env.spec))
    played = play(policy, env)
    vectors = vectors_of(Noise(stream_seeds(1, NUM_STREAMS)).draw(1)[0], env.spec.num_actions, 8)
    with patch.object(policy.model, "_vectors", lambda number: vectors):
        assert_slow(policy, played)
    assert played.terminated.any()


def test_a_stream_that_is_played_alone_has_the_vectors_that_it_has_among_others() -> None:
    env = make_env(ROOM)
    policy = GPTPolicy(gpt(env.spec), 1.0, 1.0, 0.5)
    seeds, tasks = stream_seeds(3, 5), env.all_tasks()[:5]

    def played(which: slice) -> Rollout:
        streams = start_streams(policy, env, tasks[which], seeds[which])
        return rollout(policy, env, streams, 12, Noise(seeds[which]))[0]

    alone, together = played(slice(3, 4)), played(slice(5))
    assert all(torch.equal(one[:, 0], every[:, 3]) for one, every in zip(alone, together, strict=True))


def test_a_model_reads_sets_of_other_sizes_and_all_its_parameters_learn() -> None:
    model = gpt()
    model(context_of(window_of(SPEC))).square().mean().backward()
    assert not [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
    for number in (2, 8):
        other = gpt(discrete_spec(9, number, SPEC.reward_values, 3, 5))
        other.load_state_dict(model.state_dict())
        assert other(context_of(window_of(other.spec))).shape == (3, 7, number)


def test_worlds_that_it_does_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.embed_dim=8 .* must be at least the number of actions, 9"):
        gpt(discrete_spec(9, 9, SPEC.reward_values, 3, 5))
    with pytest.raises(ConfigError, match=r"model\.head=action_vectors needs Discrete actions, .* in Box"):
        gpt(SPEC._replace(action_space=Box(-1, 1, (2,))))


@pytest.mark.parametrize(("section", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(section: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


def test_a_model_that_must_repeat_the_rewarded_action_does_so_among_more_actions() -> None:
    """The label is the action that was rewarded last. Trained on sets of 4, then on the 7 of another world."""
    torch.manual_seed(0)
    config = replace(MODEL, embed_dim=16)
    model = make_gpt(config, SPEC)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_and_accuracy(model: VectorGPT, number: int) -> tuple[Tensor, float]:
        window = Window(*(torch.zeros(64, 7, dtype=torch.long) for _ in range(4)))
        action, paid = torch.randint(number, (64, 7)), torch.randint(7, (64, 1))
        reward = SPEC.reward_of(1 + (torch.arange(7) == paid).long())
        logits = model(context_of(window._replace(action=action, reward=reward)))
        known = torch.arange(7) > paid
        target = action.gather(1, paid).expand(64, 7)[known]
        return F.cross_entropy(logits[known], target), float((logits[known].argmax(-1) == target).float().mean())

    for _ in range(200):
        optimizer.zero_grad()
        loss_and_accuracy(model, 4)[0].backward()
        optimizer.step()
    larger = make_gpt(config, discrete_spec(9, 7, SPEC.reward_values, 3, 5)).eval()
    larger.load_state_dict(model.state_dict())
    assert loss_and_accuracy(model, 4)[1] > 0.95 and loss_and_accuracy(larger, 7)[1] > 0.9


# ---- stages two and four


def test_a_continued_run_ends_with_the_same_bits_and_its_model_acts_where_actions_mean_something_else(
    root: Path,
) -> None:
    options = ("name=vectors", "histories=tiny", "run=vectors", HEAD)
    check_continues("train_gpt", root, "logs/vectors/gpt", *options)
    if "other_worlds" in extensions.NAMES:
        done("evaluate", root, *options, "env.permute_actions=true", "tasks.num_held_out=3")
        results = read_json(root / "logs/vectors/evaluation-permute_actions=true/results.json")
        assert len(results["held_out_tasks"]) == 3
    if "demo" in extensions.NAMES:  # the page in the browser does not run it
        assert HEAD in run("export_demo", root, *options).refusal


def test_without_a_cache_vectors_are_the_same_each_time_but_in_training() -> None:
    model, context = gpt(), context_of(window_of(SPEC))
    assert model(context).equal(model(context))
    assert not model.train()(context).equal(model(context))


def test_trials_are_refused(root: Path) -> None:
    start = ("finetune.start=none", "finetune.trial_steps=8", "finetune.num_iterations=1", "finetune.bonus=0")
    refused = run("finetune", root, *start, HEAD, "name=vectors", "histories=tiny").refusal
    assert HEAD in refused
