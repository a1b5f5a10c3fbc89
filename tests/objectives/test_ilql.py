"""Implicit Q-learning against loops over steps in Python's own numbers, and on a world whose values are known."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from critics import CONFIG, LENGTH, batch_of, config_of, critic_of, fresh_critic, shown, value_at_the_end
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.config.schedules import Clock
from icrl.contracts import Batch, EnvSpec, Step
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.rooms import next_cells
from icrl.nn.critic import Critic, Values
from icrl.nn.gpt import context_of
from icrl.objectives.ilql import ImplicitQLearning, expectile_loss, value_bound
from icrl.randomness import Noise, stream_seeds
from icrl.runs.distributed import Ranks
from icrl.training.updates import Updater

CPU = torch.device("cpu")
WINDOWS = 2
ends = st.lists(st.integers(0, 3), min_size=WINDOWS * LENGTH, max_size=WINDOWS * LENGTH)  # 1: terminated, 2: truncated


def batch_with(flags: list[int], seed: int = 0) -> Batch:
    return batch_of(
        WINDOWS, LENGTH, seed, terminated=[flag & 1 for flag in flags], truncated=[flag >> 1 for flag in flags]
    )


# ---- term by term


class Drawn(NamedTuple):
    """What the objective's one draw chose, seen from its targets."""

    counts: list[list[float]]
    truncation: list[int | None]  # of each window: the step whose final observation it reads


def open_ends(batch: Batch, row: int) -> list[int]:
    """Steps that are truncated, not terminated, and not the last: of them one is shown."""
    return [t for t in range(LENGTH - 1) if batch.truncated[row, t] and not batch.terminated[row, t]]


def drawn(counts: Tensor, batch: Batch) -> Drawn:
    chosen: list[int | None] = []
    for row in range(len(batch.obs)):
        candidates = open_ends(batch, row)
        counted = [t for t in candidates if counts[row, t] > 0]
        assert len(counted) == min(1, len(candidates))
        chosen.append(counted[0] if counted else None)
    return Drawn(counts.tolist(), chosen)


def expected_targets(critic: Critic, batch: Batch, which: Drawn) -> tuple[list[list[float]], list[list[float]]]:
    """Backups and counts, step by step."""
    config, slow = critic.config, critic.target
    with torch.no_grad():
        value = slow(shown(batch)).value.tolist()
    backups, counts = [], []
    for row in range(len(batch.obs)):
        backup, count = [0.0] * LENGTH, [0.0] * LENGTH
        for t in reversed(range(LENGTH)):
            terminated, truncated = bool(batch.terminated[row, t]), bool(batch.truncated[row, t])
            over, is_last, local = terminated or truncated, t == LENGTH - 1, config.horizon == "episode"
            gamma = config.discount_factor if config.discount_per == "step" or over else 1.0
            following, count[t] = (0.0, 0.0) if is_last else (value[row][t + 1], 1.0)
            if local and terminated:
                following = 0.0
            elif local and truncated and not is_last:
                following, count[t] = 0.0, 0.0
                if t == which.truncation[row]:
                    following = value_at_the_end(slow, batch, row, t)
                    count[t] = float(len(open_ends(batch, row)))
            elif not is_last and count[t + 1]:  # what came next says more than V
                following += config.return_lambda * (backup[t + 1] - following)
            backup[t] = config.reward_scale * float(batch.training_reward[row, t]) + gamma * following
        backups.append(backup)
        counts.append(count)
    return backups, counts


def expected_terms(
    critic: Critic, batch: Batch, backups: list[list[float]], counts: list[list[float]]
) -> dict[str, float]:
    config = critic.config
    with torch.no_grad():
        online: Values = critic.online(shown(batch))
        slow: Values = critic.target(shown(batch))
    sums = dict.fromkeys(("q1", "q2", "value", "conservative", "imitation", "td_error", "usable"), 0.0)
    for row in range(len(batch.obs)):
        for t in range(LENGTH):
            action, count = int(batch.action[row, t]), counts[row][t]
            q = [online.q[i, row, t].tolist() for i in range(2)]
            for i in range(2):
                error = backups[row][t] - q[i][action]
                sums[f"q{i + 1}"] += count * error**2
                sums["td_error"] += count * abs(error) / 2
                sums["conservative"] += math.log(sum(math.exp(x) for x in q[i])) - q[i][action]
            sums["usable"] += count
            target = min(float(slow.q[i, row, t, action]) for i in range(2))
            above = target - float(online.value[row, t])
            sums["value"] += (config.expectile if above >= 0 else 1 - config.expectile) * above**2
            if online.logits is not None:
                logits = online.logits[row, t].tolist()
                sums["imitation"] += math.log(sum(math.exp(x) for x in logits)) - logits[action]
    steps = len(batch.obs) * LENGTH
    usable = max(sums.pop("usable"), 1.0)
    divisors = {
        "q1": usable,
        "q2": usable,
        "td_error": usable,
        "value": steps,
        "conservative": 2 * steps,
        "imitation": steps,
    }
    return {name: total / divisors[name] for name, total in sums.items()}


FORMS: dict[str, dict[str, Any]] = {
    "ilql": {
        "horizon": "episode",
        "return_lambda": 0.6,
        "conservative_scaling": 0.3,
        "imitation_scaling": 0.7,
        "v_loss_scaling": 0.6,
        "q_loss_scaling": 0.9,
    },
    "ilql across episodes": {
        "horizon": "across_episodes",
        "discount_per": "episode",
        "conservative_scaling": 0.0,
        "return_lambda": 0.7,
    },
    "cql across steps": {"backup": "max", "v_loss_scaling": 0.0, "horizon": "across_episodes", "return_lambda": 0.0},
    "iql across episodes": {"horizon": "across_episodes", "separate_value": True, "value_trunk_grad": "none"},
    "iql": {"horizon": "episode", "separate_value": True, "expectile": 0.5, "reward_scale": 3.0},
    "iql of returns": {"horizon": "episode", "return_lambda": 1.0, "reward_scale": 3.0},
    "cql": {"backup": "max", "v_loss_scaling": 0.0, "conservative_scaling": 1.0, "horizon": "episode"},
    "cql across episodes": {"backup": "max", "v_loss_scaling": 0.0, "horizon": "across_episodes"},
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None)
@given(flags=ends, seed=st.integers(0, 99))
def test_every_term_equals_a_loop_over_steps(form: str, flags: list[int], seed: int) -> None:
    critic, batch = critic_of(critic=FORMS[form]).eval(), batch_with(flags, seed)
    objective = ImplicitQLearning(critic)
    torch.manual_seed(seed)
    which = drawn(objective.targets(batch).counts, batch) if critic.config.horizon == "episode" else Drawn([], [])
    torch.manual_seed(seed)
    terms, metrics = objective(critic, batch)
    backups, counts = expected_targets(critic, batch, which)
    expected = expected_terms(critic, batch, backups, counts)
    assert terms.keys() == objective.weights.keys()
    for name, term in terms.items():
        assert term.item() == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name
    assert metrics["td_error"].item() == pytest.approx(expected["td_error"], rel=1e-4, abs=1e-5)


def test_the_weights_of_the_terms_are_the_options() -> None:
    def weights_of(**critic: Any) -> dict[str, float]:
        return ImplicitQLearning(critic_of(critic=critic)).weights

    assert weights_of(**FORMS["ilql"]) == {
        "q1": 0.9,
        "q2": 0.9,
        "value": 0.6,
        "conservative": 0.3,
        "imitation": 0.7,
    }
    assert weights_of(**FORMS["ilql across episodes"]) == {"q1": 1.0, "q2": 1.0, "value": 1.0}
    assert weights_of(**FORMS["cql"]) == {"q1": 1.0, "q2": 1.0, "conservative": 1.0}


def test_metrics_by_hand() -> None:
    critic, batch = critic_of().eval(), batch_of()
    _, metrics = ImplicitQLearning(critic, bound=4.0)(critic, batch)
    online, slow = critic.online(shown(batch)), critic.target(shown(batch))
    taken = online.q.gather(-1, batch.action.expand(2, -1, -1)[..., None])
    target = slow.q.gather(-1, batch.action.expand(2, -1, -1)[..., None]).min(0).values[..., 0]
    assert metrics["q"].item() == pytest.approx(taken.mean().item(), abs=1e-6)
    assert metrics["v"].item() == pytest.approx(online.value.mean().item(), abs=1e-6)
    assert metrics["above_value"].item() == pytest.approx((target > online.value).float().mean().item())
    assert metrics["largest_q"].item() == pytest.approx(online.q.abs().max().item())
    assert metrics["q_over_bound"].item() == pytest.approx(online.q.abs().max().item() / 4)
    assert not any(metric.requires_grad for metric in metrics.values())
    assert metrics.keys() == {"q", "v", "above_value", "largest_q", "q_over_bound", "td_error"}


# ---- ends of episodes


def test_each_truncation_of_a_window_is_chosen_about_as_often() -> None:
    """And counts for all of them, so that none is left out in the mean."""
    number, places = 600, (1, 2, 5)
    truncated = [int(t in places) for t in range(LENGTH)] * number
    batch = batch_of(number, LENGTH, truncated=truncated)
    torch.manual_seed(0)
    counts = ImplicitQLearning(critic_of(critic={"horizon": "episode"})).targets(batch).counts
    assert set(counts[:, places].unique().tolist()) == {0.0, 3.0}
    assert torch.equal(counts[:, places].sum(1), torch.full((number,), 3.0))
    for place in places:
        assert (counts[:, place] > 0).float().mean().item() == pytest.approx(1 / 3, abs=0.07)
    assert (counts[:, [0, 3, 4]] == 1).all() and (counts[:, -1] == 0).all()


def one_window(terminated: int | None = None, truncated: int | None = None) -> Batch:
    return batch_of(
        1,
        terminated=[int(t == terminated) for t in range(LENGTH)],
        truncated=[int(t == truncated) for t in range(LENGTH)],
    )


def test_what_terminated_ends_the_return_and_what_was_truncated_does_not() -> None:
    critic = critic_of(critic={"horizon": "episode", "discount_factor": 0.5})
    objective = ImplicitQLearning(critic)
    at = LENGTH - 3
    for batch in (
        one_window(terminated=at),
        one_window(terminated=at)._replace(truncated=one_window(None, at).truncated),
    ):
        assert objective.targets(batch).backup[0, at] == batch.training_reward[0, at]
    batch = one_window(truncated=at)
    at_end = value_at_the_end(critic.target, batch, 0, at)
    assert abs(at_end) > 0.01
    assert objective.targets(batch).backup[0, at].item() == pytest.approx(
        float(batch.training_reward[0, at]) + 0.5 * at_end, abs=1e-5
    )


@pytest.mark.parametrize("horizon", ["episode", "across_episodes"])
@pytest.mark.parametrize("return_lambda", [0.0, 1.0])
def test_the_last_step_never_counts(horizon: str, return_lambda: float) -> None:
    """Nor does its return reach the step before it: what is learned from must not depend on what came of it."""
    form = {"horizon": horizon, "return_lambda": return_lambda, "discount_factor": 0.5}
    objective, last = ImplicitQLearning(critic_of(critic=form)), LENGTH - 1
    for batch in (one_window(terminated=last), one_window(truncated=last), one_window()):
        targets = objective.targets(batch)
        assert targets.counts[0].tolist() == [1.0] * last + [0.0]
        value = float(objective.slow(shown(batch)).value[0, last])
        expected = float(batch.training_reward[0, last - 1]) + 0.5 * value
        assert targets.backup[0, last - 1].item() == pytest.approx(expected, abs=1e-5)


def test_without_a_usable_step_the_loss_is_zero() -> None:
    critic = critic_of(critic={"horizon": "episode"})
    single = Batch(*(column[:, :1] for column in one_window()))
    terms, _ = ImplicitQLearning(critic)(critic, single)
    assert terms["q1"] == terms["q2"] == 0


# ---- where gradients go


def gradients(critic: Critic, loss: Tensor) -> dict[str, Tensor | None]:
    critic.zero_grad()
    loss.backward()
    return {name: parameter.grad for name, parameter in critic.named_parameters()}


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_losses_with_constant_targets(form: str) -> None:
    """So none flows through the bootstrap, nor through what V is pulled to."""
    critic, batch = critic_of(critic=FORMS[form]), batch_with([0, 0, 2, 0, 1, 0, 3] * WINDOWS)
    objective = ImplicitQLearning(critic)
    torch.manual_seed(1)
    targets = objective.targets(batch)
    torch.manual_seed(1)
    terms, _ = objective(critic, batch)
    total = torch.stack([objective.weights[name] * term for name, term in terms.items()]).sum()
    found = gradients(critic, total)
    online = critic.online(shown(batch))
    q = [online.q[i].gather(-1, batch.action[..., None])[..., 0] for i in range(2)]
    above = targets.q.clone() - online.value
    side = torch.where(above < 0, 1 - critic.config.expectile, critic.config.expectile)
    by_hand = {
        "q1": ((targets.backup - q[0]) ** 2 * targets.counts).sum() / targets.counts.sum(),
        "q2": ((targets.backup - q[1]) ** 2 * targets.counts).sum() / targets.counts.sum(),
        "value": (side * above**2).mean(),
        "conservative": (torch.stack([x.exp().sum(-1).log() for x in online.q]) - torch.stack(q)).mean(),
    }
    if online.logits is not None:
        by_hand["imitation"] = -online.logits.log_softmax(-1).gather(-1, batch.action[..., None]).mean()
    expected = gradients(
        critic, torch.stack([weight * by_hand[name] for name, weight in objective.weights.items()]).sum()
    )
    for name, gradient in found.items():
        assert (gradient is None) == (expected[name] is None), name
        if gradient is not None:
            torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-5)
    assert all(found[name] is None for name in found if name.startswith("target."))


def test_losses_of_values_leave_the_trunk_alone_where_asked_to() -> None:
    for trunk_grad, reaches in (("full", True), ("none", False)):
        form = {"value_trunk_grad": trunk_grad, "separate_value": True}
        critic = critic_of(critic=form)
        objective = ImplicitQLearning(critic)
        terms, _ = objective(critic, batch_of())
        found = gradients(critic, torch.stack(list(terms.values())).sum())
        for name, gradient in found.items():
            if name.startswith(("online.trunk.", "online.value_trunk.")):
                assert (gradient is not None) == reaches, name
            elif name.startswith("online."):
                assert gradient is not None and gradient.abs().sum() > 0, name


def test_a_policy_head_teaches_the_trunk_that_values_leave_alone() -> None:
    critic = critic_of(critic={"value_trunk_grad": "none", "imitation_scaling": 1.0})
    terms, _ = ImplicitQLearning(critic)(critic, batch_of())
    found = gradients(critic, terms["q1"] + terms["q2"] + terms["value"])
    assert all(found[name] is None for name in found if "trunk" in name or "policy" in name)
    terms, _ = ImplicitQLearning(critic)(critic, batch_of())
    found = gradients(critic, terms["imitation"])
    assert found["online.trunk.prev_action.weight"].abs().sum() > 0
    assert all(found[name] is None for name in found if "q_heads" in name or "value_head" in name)


def test_the_value_loss_moves_no_q_and_the_td_loss_no_v() -> None:
    """Heads have nothing in common: not as in a dueling form."""
    critic = critic_of(critic={"value_trunk_grad": "none", "imitation_scaling": 1.0})
    for name, moved in (("q1", "online.q_heads.0."), ("q2", "online.q_heads.1."), ("value", "online.value_head.")):
        terms, _ = ImplicitQLearning(critic)(critic, batch_of())
        found = gradients(critic, terms[name])
        assert {key for key, gradient in found.items() if gradient is not None and gradient.any()} == {
            key for key in found if key.startswith(moved)
        }


# ---- targets


def test_targets_do_not_see_dropout() -> None:
    """Which is on in what is trained. Of a single truncation in a window none is drawn."""
    critic = critic_of(encoder={"dropout": 0.5}, decoder={"dropout": 0.5}, critic={"horizon": "episode"}).train()
    batch = batch_with([0, 2, 0, 1, 0, 0, 0] * WINDOWS)
    objective = ImplicitQLearning(critic)
    assert not torch.equal(critic(shown(batch)).value, critic(shown(batch)).value)
    first, second = objective.targets(batch), objective.targets(batch)
    critic.eval()
    for one, two, quiet in zip(first, second, objective.targets(batch), strict=True):
        assert torch.equal(one, two) and torch.equal(one, quiet)


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_the_expectile_loss_is_half_the_squared_loss_at_a_half(expectile: float) -> None:
    above = torch.tensor([-3.0, -1.0, 0.0, 2.0])
    found = expectile_loss(above, expectile)
    assert found.tolist() == pytest.approx([9 * (1 - expectile), 1 - expectile, 0, 4 * expectile])
    critic, batch = critic_of(critic={"expectile": 0.5}).eval(), batch_of()
    terms, _ = ImplicitQLearning(critic)(critic, batch)
    target = critic.target(shown(batch)).least_q.gather(-1, batch.action[..., None])[..., 0]
    plain = (target - critic.online(shown(batch)).value).square().mean()
    assert terms["value"].item() == pytest.approx(plain.item() / 2, rel=1e-5)


def clock(update: int, total: int = 10) -> Clock:
    return Clock(update / total, update, 0, update)


@pytest.mark.parametrize("optimizer", ["adamw", "mtadam"])
def test_targets_move_every_so_many_steps_of_the_optimizer_however_many_parts_a_batch_has(optimizer: str) -> None:
    config = load_config(["optimizer=mtadam"]).optimizer if optimizer == "mtadam" else CONFIG.optimizer
    whole = config_of(
        replace(CONFIG, optimizer=config),
        trainer={"gradient_accumulation_steps": 2},
        critic={"target_update_interval": 3, "target_update_rate": 1.0},
    )
    critic = fresh_critic(whole).train()
    updater = Updater(critic, ImplicitQLearning(critic), whole, CPU, Ranks(), critic.after_update)
    before = critic.target.q_heads[0][0].weight.clone()
    moved = []
    for update in range(7):
        updater.update(batch_of(4, seed=update), clock(update))
        now = critic.target.q_heads[0][0].weight
        moved.append(not torch.equal(now, before))
        if moved[-1]:
            assert torch.equal(now, critic.online.q_heads[0][0].weight)
        before = now.clone()
    assert moved == [False, False, True, False, False, True, False]
    assert critic.updates == 7


# ---- precision


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("form", ["ilql", "cql"])
def test_values_of_any_size_give_finite_losses_in_float32(form: str, size: float, amp: bool) -> None:
    critic = critic_of(critic=FORMS[form])
    with torch.no_grad():
        for network, sign in ((critic.online, 1), (critic.target, -1)):
            for head in network.q_heads:
                head[-1].bias.fill_(sign * size)
    batch = batch_with([0, 0, 2, 0, 1, 0, 3] * WINDOWS)
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        terms, metrics = ImplicitQLearning(critic, 2.0)(critic, batch)
    assert {term.dtype for term in terms.values()} == {torch.float32}
    found = gradients(critic, torch.stack(list(terms.values())).sum())
    everything = [*terms.values(), *metrics.values(), *(g for g in found.values() if g is not None)]
    assert all(value.isfinite().all() for value in everything)
    assert metrics["largest_q"] > size / 2


# ---- the bound


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"discount_factor": 0.9, "horizon": "across_episodes"}, 20.0),
        ({"discount_factor": 0.9, "horizon": "episode"}, 20.0),  # what is truncated goes on
        ({"discount_factor": 0.5, "horizon": "episode"}, 4.0),
        ({"discount_factor": 1.0, "horizon": "episode"}, math.inf),
        ({"discount_factor": 1.0, "horizon": "across_episodes"}, math.inf),
        ({"discount_factor": 0.9, "horizon": "across_episodes", "discount_per": "episode"}, 100.0),
        ({"discount_factor": 1.0, "horizon": "across_episodes", "discount_per": "episode"}, math.inf),
        ({"discount_factor": 0.5, "horizon": "episode", "reward_scale": 0.1}, 0.4),
    ],
)
def test_how_large_a_value_can_be(options: dict[str, Any], expected: float) -> None:
    """Rewards of at most 2, episodes of at most 5 steps."""
    config = config_of(critic={"discount_per": "step"} | options).critic
    assert value_bound(config, 2.0, 5) == pytest.approx(expected)
    assert value_bound(config, 0.0, 5) == 0


@pytest.mark.parametrize("discount_factor", [0.5, 1.0])
def test_where_nothing_is_ever_paid_no_q_is_over_the_bound(discount_factor: float) -> None:
    critic = critic_of(critic={"discount_factor": discount_factor})
    bound = value_bound(critic.config, 0.0, 5)
    assert ImplicitQLearning(critic, bound)(critic, batch_of())[1]["q_over_bound"] == 0


# ---- a world whose values are known


WORLD = load_config(
    [
        *("env=tiny_room", "env.size=3", "env.max_episode_steps=6", "tasks.num_train=3"),
        *("data.num_development_tasks=0", "trainer.evaluate=false"),
        *("model.context_len=6", "model.embed_dim=16", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=32"),
        *("model.position=env_time", "model.obs_encoding=cell", "data.kept_steps=0"),
        *("critic=ilql", "critic.conservative_scaling=0", "critic.return_lambda=0"),
        *("critic.target_update_rate=0.3", "optimizer=adamw", "optimizer.weight_decay=0"),
        "optimizer.learning_rate={kind: linear, progress: percent, points: [[0, 0.01], [0.5, 0.01], [1, 0.0005]]}",
    ]
)
SIZE, LIMIT, GOAL, START = 3, 6, 1, 4  # two moves to the goal at most are needed, and chance takes longer


class Chance:
    def initial_carry(self, num_streams: int) -> None: ...

    def act(self, carry: None, step: Step, noise: Tensor) -> tuple[Tensor, None]:
        return (noise * 5).long(), None


def lives(env: TensorEnv, number: int, num_steps: int, goals: Sequence[int] = (GOAL,)) -> dict[str, Tensor]:
    """What chance lived through, `[number, num_steps]` each, with one goal after the other."""
    tasks = torch.tensor(goals).repeat(-(-number // len(goals)))[:number, None]
    streams = start_streams(Chance(), env, tasks, stream_seeds(0, number))
    played, _ = rollout(Chance(), env, streams, num_steps, Noise(stream_seeds(1, number)))
    return {name: column.T.long() for name, column in played._asdict().items()}


def windows_of(columns: dict[str, Tensor], number: int, length: int) -> Batch:
    rows, num_steps = columns["obs"].shape
    row, start = torch.randint(rows, (number, 1)), torch.randint(num_steps - length + 1, (number, 1))
    window = {name: column[row, start + torch.arange(length)] for name, column in columns.items()}
    return Batch(**window, weight=torch.ones(number, length), training_reward=window["reward"].float())


def expectile_of(values: list[float], expectile: float) -> float:
    """The v at which the weighted sum of (value - v) is 0."""
    v = sum(values) / len(values)
    for _ in range(50):
        weights = [expectile if value >= v else 1 - expectile for value in values]
        v = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
    return v


def exact_values(config: Config, value_of: Callable[[list[float]], float]) -> tuple[Tensor, Tensor]:
    """Q `[time, cell, action]` and V `[time, cell]` by dynamic programming, where V is `value_of` the Q of a cell."""
    critic, to = config.critic, next_cells(SIZE).view(SIZE**2, 5).tolist()
    value = [[0.0] * SIZE**2 for _ in range(LIMIT)]
    for _ in range(60):
        q = [[[0.0] * 5 for _ in range(SIZE**2)] for _ in range(LIMIT)]
        for time in range(LIMIT):
            for cell in range(SIZE**2):
                for action in range(5):
                    led = to[cell][action]
                    won, over = led == GOAL, led == GOAL or time == LIMIT - 1
                    gamma = critic.discount_factor if critic.discount_per == "step" or over else 1.0
                    following = value[min(time + 1, LIMIT - 1)][led]  # within an episode the clock is no end
                    if critic.horizon == "episode":
                        following *= not won
                    elif over:
                        following = value[0][START]
                    q[time][cell][action] = float(won) + gamma * following
        value = [[value_of(of_cell) for of_cell in of_time] for of_time in q]
    return torch.tensor(q), torch.tensor(value)


def learned_from(columns: dict[str, Tensor], config: Config, spec: EnvSpec, num_updates: int, size: int = 64) -> Critic:
    """After so many updates on `size` windows."""
    torch.manual_seed(0)
    critic = fresh_critic(config, spec).train()
    updater = Updater(critic, ImplicitQLearning(critic), config, CPU, Ranks(), critic.after_update)
    for update in range(num_updates):
        updater.update(windows_of(columns, size, config.model.context_len), clock(update, num_updates))
    return critic.eval()


@pytest.mark.parametrize(
    ("backup", "horizon", "discount_per", "discount_factor", "expectile"),
    [
        ("max", "episode", "step", 0.6, 0.5),
        ("expectile", "episode", "step", 0.6, 0.5),  # the values of chance
        ("expectile", "across_episodes", "step", 0.6, 0.9),
        ("max", "across_episodes", "step", 0.6, 0.5),
    ],
)
def test_values_of_a_small_world_become_the_true_ones(
    backup: str, horizon: str, discount_per: str, discount_factor: float, expectile: float
) -> None:
    """Of every action in every place and time that chance came to: on average within 2 % of the largest, and nowhere
    beyond 8 %."""
    counted = {"discount_per": discount_per, "discount_factor": discount_factor}
    learned = {"backup": backup, "v_loss_scaling": float(backup == "expectile"), "expectile": expectile}
    config = config_of(WORLD, critic=counted | learned | {"horizon": horizon})
    env = make_env(config.env)
    columns = lives(env, 1000, 40)
    critic = learned_from(columns, config, env.spec, 600)
    seen = windows_of(columns, 400, 6)
    true_q, true_value = exact_values(config, max if backup == "max" else lambda q: expectile_of(q, expectile))
    with torch.no_grad():
        values = critic.target(context_of(env.spec, *seen[:3], seen.timestep))
    q, size = values.q.mean(0).gather(-1, seen.action[..., None])[..., 0], true_q.max()
    for found, true in (
        (q, true_q[seen.timestep, seen.obs, seen.action]),
        (values.value, true_value[seen.timestep, seen.obs]),
    ):
        assert ((found - true).abs().mean() / size).item() < 0.02
        assert ((found - true).abs().max() / size).item() < 0.08


def test_values_do_not_depend_on_the_place_in_a_window() -> None:
    """Of chance, with goals that nobody can know. To learn from a last step only where it was won would make it
    certain of that."""
    form = {"horizon": "episode", "discount_factor": 0.6, "expectile": 0.5}
    config = config_of(WORLD, model={"position": "learned"}, encoder={"position": "learned"}, critic=form)
    env = make_env(config.env)
    columns = lives(env, 400, 40, [goal for goal in range(SIZE**2) if goal != START])
    critic = learned_from(columns, config, env.spec, 200, 32)
    seen = windows_of(columns, 1000, 6)
    with torch.no_grad():
        q = critic.target(context_of(env.spec, *seen[:3], seen.timestep)).q.mean(0)
    of_place = q.gather(-1, seen.action[..., None])[..., 0].mean(0)
    assert (of_place.max() - of_place.min()).item() < 0.05
