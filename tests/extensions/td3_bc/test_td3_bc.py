"""In-context TD3+BC: losses against plain loops, gradients, learning, acting, a killed run, and refusals."""

import math
from pathlib import Path

import pytest
import torch
from continued import check_continues
from harness import SMALL, done, refusal
from models import outspoken
from policies import CONTEXT_LEN, NUM_STREAMS, Recorded, assert_slow, play
from refusals import check_refusal, refusals
from space_worlds import WORLDS, window_of

import icrl
from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, ConfigError
from icrl.envs import make_env
from icrl.extensions.td3_bc import objective as module
from icrl.extensions.td3_bc.networks import Actor, ActorAndCritics
from icrl.extensions.td3_bc.objective import TD3BC, TD3BCConfig
from icrl.nn.gpt import Window, context_of
from icrl.randomness import uniform
from icrl.training.program import check_stage_two

ROBOT = load_config(["env=point_robot"])
SPEC = WORLDS["vector to arm"]
MODEL = replace(
    load_config().model, context_len=8, embed_dim=16, num_layers=1, num_heads=2, ff_dim=32, obs_encoding="coordinates"
)
STD = 2.0
NUM, STEPS = 3, 5
TERMINATED, TRUNCATED = (0, 1), (1, 2)  # window and step


def networks_of(std: float = 0.2) -> ActorAndCritics:
    """Networks with large weights, and others as their slow copies."""
    torch.manual_seed(0)
    made = ActorAndCritics(MODEL, SPEC)
    outspoken(made.online, std)
    outspoken(made.target, std / 2)
    return made


def batch_of(window: Window) -> Batch:
    """The windows, with an episode that terminates as the clock runs out, one that is cut off, and one that terminates
    with its window."""
    terminated, truncated = torch.zeros(2, *window.reward.shape, dtype=torch.long)
    terminated[TERMINATED] = truncated[TERMINATED] = truncated[TRUNCATED] = terminated[2, -1] = 1
    ones = torch.ones(window.reward.shape)
    ends = window.timestep, terminated, truncated, window.action
    return Batch(window.obs, window.action, window.reward, window.obs, *ends, ones, window.reward)


def in_units(number: float, k: int) -> float:
    low, high = float(SPEC.action_space.low[k]), float(SPEC.action_space.high[k])
    return (number - (low + high) / 2) / ((high - low) / 2)


@torch.no_grad()
def by_hand(
    networks: ActorAndCritics, batch: Batch, noise: torch.Tensor, discount: float, weight: float
) -> list[float]:
    """Both losses and the metrics, step by step."""
    context, online, slow = context_of(Window.of(batch)), networks.online, networks.target
    h, h_bar = online.hidden(context), slow.hidden(context)
    critic, error, count, cloned, away, q, of_chosen, of_taken = 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for b in range(NUM):
        for t in range(STEPS):
            taken = [in_units(float(batch.action[b, t, k]), k) for k in range(2)]
            chosen = online.actor.policy_head(h[b, t])[:2].tanh().tolist()
            cloned += sum((c - a) ** 2 for c, a in zip(chosen, taken, strict=True)) / (NUM * STEPS * 2)
            away += sum(abs(c - a) for c, a in zip(chosen, taken, strict=True)) / (NUM * STEPS * 2)
            q_taken = [float(one(torch.cat([h[b, t], torch.tensor(taken)]))) for one in online.critics]
            q += sum(q_taken) / (NUM * STEPS * 2)
            of_chosen += float(online.critics[0](torch.cat([h[b, t], torch.tensor(chosen)])))
            of_taken += abs(q_taken[0])
            if (b, t) == TRUNCATED or t == STEPS - 1:
                continue
            target = float(batch.reward[b, t]) / STD
            if (b, t) != TERMINATED:
                following = slow.actor.policy_head(h_bar[b, t + 1])[:2].tanh().tolist()
                noises = [min(max(0.2 * float(noise[b, t + 1, k]), -0.5), 0.5) for k in range(2)]
                moved = [min(max(f + e, -1.0), 1.0) for f, e in zip(following, noises, strict=True)]
                inputs = torch.cat([h_bar[b, t + 1], torch.tensor(moved)])
                target += discount * min(float(one(inputs)) for one in slow.critics)
            errors = [target - one for one in q_taken]
            critic += sum(one**2 for one in errors) / 2
            error += sum(map(abs, errors)) / 2
            count += 1
    return [critic / count, cloned - weight * of_chosen / of_taken, error / count, q, of_chosen / (NUM * STEPS), away]


@pytest.mark.parametrize(("discount", "weight"), [(0.9, 2.5), (0.0, 0.0)])
def test_losses_are_those_of_plain_loops(monkeypatch: pytest.MonkeyPatch, discount: float, weight: float) -> None:
    networks, batch = networks_of(), batch_of(window_of(SPEC, NUM, STEPS))
    noise = 3 * torch.randn(NUM, STEPS, 2, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(module.torch, "randn_like", lambda _: noise)
    aim = TD3BC(TD3BCConfig(discount=discount, q_weight=weight), SPEC, networks, torch.tensor([STD]))
    terms, metrics = aim(networks, batch)
    expected = by_hand(networks, batch, noise, discount, weight)
    names = (*aim.weights, "td_error", "q", "q_chosen", "action_error")
    found = [(terms | metrics)[name].item() for name in names]
    assert found == pytest.approx(expected, rel=1e-4)
    assert TD3BC(TD3BCConfig(), SPEC, networks, torch.tensor(0.0)).reward_std == 1, "all rewards are the same"
    assert all(math.isfinite(metric) for metric in metrics.values())


def test_windows_of_one_step_and_values_of_zero_have_finite_losses() -> None:
    """No next step is known in them, and a Q of 0 has no size to divide by."""
    networks, batch = networks_of(), Batch(*(column[:, :1] for column in batch_of(window_of(SPEC, NUM, STEPS))))
    outspoken(networks.online.critics, 0.0)
    terms, metrics = TD3BC(TD3BCConfig(), SPEC, networks)(networks, batch)
    assert terms["critic"] == 0 and all(number.isfinite() for number in (terms | metrics).values())


def test_the_actor_does_not_move_the_critics() -> None:
    networks, batch = networks_of(), batch_of(window_of(SPEC, NUM, STEPS))
    aim = TD3BC(TD3BCConfig(), SPEC, networks)
    aim(networks, batch)[0]["actor"].backward()
    assert all(one.grad is None for one in networks.online.critics.parameters())
    assert all(one.requires_grad for one in networks.online.parameters())
    assert all(one.grad is None and not one.requires_grad for one in networks.target.parameters())
    assert networks.online.actor.policy_head.weight.grad.abs().sum() > 0


def test_slow_copies_move_by_a_twentieth() -> None:
    networks = networks_of()
    slow, fast = (one.critics[0][0].weight for one in (networks.target, networks.online))
    expected = 0.95 * slow + 0.05 * fast
    networks.after_update()
    torch.testing.assert_close(slow, expected)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_critic_leads_the_actor_by_its_action_alone(order: tuple[int, int]) -> None:
    """Gradients of the actor and its trunk, with either of two critics as the first."""
    networks, batch = networks_of(), batch_of(window_of(SPEC, NUM, STEPS))
    online, parameters = networks.online, [*networks.online.actor.parameters()]
    online.critics = torch.nn.ModuleList(online.critics[number] for number in order)
    loss = TD3BC(TD3BCConfig(), SPEC, networks)(networks, batch)[0]["actor"]
    hidden = online.hidden(context_of(Window.of(batch)))
    chosen, taken = online.actor.chosen(hidden), online.actor.head.in_units(batch.action)
    q, size = (online.critics[0](torch.cat([hidden.detach(), action], -1)) for action in (chosen, taken))
    expected = (chosen - taken).square().mean() - 2.5 * q.mean() / size.detach().abs().mean()
    ours, theirs = (torch.autograd.grad(one, parameters, allow_unused=True) for one in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("weight", "num_updates"), [(2.5, 150), (0.0, 50)])
def test_an_actor_learns_what_pays_from_random_actions(weight: float, num_updates: int) -> None:
    """The reward is best for actions of 0.6 in units; clones of random actions stay in the middle."""
    torch.manual_seed(0)
    networks = ActorAndCritics(MODEL, SPEC)
    aim, generator = TD3BC(TD3BCConfig(q_weight=weight, discount=0.0), SPEC, networks), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(networks.online.parameters(), 3e-3)
    window = window_of(SPEC, 16, 4)._replace(obs=torch.zeros(16, 4, 3))
    for _ in range(num_updates):
        units = 2 * torch.rand(16, 4, 2, generator=generator) - 1
        action = networks.online.actor.head.from_units(units)
        batch = batch_of(window._replace(action=action, reward=-(units - 0.6).square().sum(-1)))
        optimizer.zero_grad()
        sum(aim(networks, batch)[0].values()).backward()
        optimizer.step()
        networks.after_update()
    with torch.no_grad():
        chosen = networks.online.actor.chosen(networks.online.hidden(context_of(Window.of(batch))))
    error = (chosen - 0.6).abs().mean()
    assert error < 0.2 if weight else error > 0.4


@torch.no_grad()
def test_an_actor_acts_without_noise_and_its_cache_equals_no_cache() -> None:
    env = make_env(ROBOT.env)
    model = outspoken(Actor(replace(MODEL, context_len=CONTEXT_LEN), env.spec), 0.3).eval()
    policy = Recorded(model)
    played = play(policy, env)
    assert_slow(policy, played)
    for action, cached in zip(played.action, policy.noted, strict=True):
        assert torch.allclose(action, model.head.mode(cached))
    noise = uniform(torch.tensor(3), torch.arange(NUM_STREAMS))
    obs = played.obs[0]
    assert torch.equal(
        policy.choose(cached, obs, noise), Recorded(model, temperature=9.0).choose(cached, obs, 1 - noise)
    )


def test_a_continued_run_ends_with_the_same_bits_and_its_actor_acts(tmp_path: Path) -> None:
    every = ("checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2", "trainer.evaluate=false")
    short = ("evaluation.checkpoint=last", "evaluation.ablations=false", "evaluation.videos=false")
    world = ("env=point_robot", "env.max_episode_steps=10", "tasks.num_train=8", "tasks.num_held_out=3")
    plain = ("data.min_final_success=0", "source.videos_per_task=0", "evaluation.temperatures=[]")
    options = (*world, *plain, *every, *short, "objective=td3_bc", "policy.model=td3_bc")
    done("train_agents", tmp_path, *options, preset=SMALL)
    check_continues("train_td3_bc", tmp_path, "logs/small/td3_bc", *options, step=2, preset=SMALL)
    before, after = (
        torch.load(tmp_path / f"logs/small/td3_bc/last-{step:09}.pt", weights_only=True)["model"] for step in (2, 4)
    )
    slow = [name for name in before if name.startswith("target.critics")]
    assert slow and not any(torch.equal(before[name], after[name]) for name in slow)
    deviations = [number for name, number in after.items() if name.endswith("standardize.std")]
    assert deviations and not any((number == 1).all() for number in deviations)
    done("evaluate", tmp_path, *options, preset=SMALL)
    assert (tmp_path / "logs/small/evaluation-policy=td3_bc/results.json").exists()
    policy = icrl.load(tmp_path / "logs/small", model="td3_bc")
    assert isinstance(policy.policy.model, Actor) and policy.act(torch.zeros(1, *policy.spec.obs_shape)).shape == (1, 2)
    for option in ("objective.weighting=recency", "model.head=binned"):
        assert option in refusal("train_td3_bc", tmp_path, *options, option, preset=SMALL)
    message = refusal("train_gpt", tmp_path, *options, "policy.model=gpt", preset=SMALL)
    assert "not by train_gpt" in message
    message = refusal("train_td3_bc", tmp_path, *options, "objective=ad", preset=SMALL)
    assert "give objective=td3_bc" in message


def test_a_world_needs_continuous_actions() -> None:
    config = load_config(["objective=td3_bc", "model.obs_encoding=coordinates"])
    check_stage_two(config, SPEC)
    with pytest.raises(ConfigError, match=r"objective\.name=td3_bc needs continuous actions in a Box, not Discrete"):
        check_stage_two(config, WORLDS["vector to number"])


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


def test_a_pipeline_that_would_not_train_it_is_refused_before_any_work(tmp_path: Path) -> None:
    refused = refusal("pipeline", tmp_path, "env=point_robot", "source=ppo_vectors", "objective=td3_bc", preset=())
    assert "objective.name=td3_bc" in refused and "train-td3-bc" in refused.replace("_", "-")
    assert not (tmp_path / "histories").exists()
