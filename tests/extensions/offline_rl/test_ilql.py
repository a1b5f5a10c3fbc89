"""Implicit Q-learning against loops over steps."""

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import critics
import numpy as np
import pytest
import torch
from critics import LENGTH, batch_of, config_of, critic_of, fresh_critic, shown, value_at_the_end
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from parallel_critics import critic
from stage_one import play
from torch import Tensor
from toy import CPU, curves, look, steps_of, weights_of

from icrl.app.compose import compose_config
from icrl.config.schedules import Clock
from icrl.contracts import Batch, Rollout
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.envs.rooms import next_cells
from icrl.extensions.offline_rl.critic import Critic
from icrl.extensions.offline_rl.ilql import ImplicitQLearning, value_bound
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.runs.distributed import Ranks
from icrl.runs.divergence import DivergedError
from icrl.runs.files import PROJECT
from icrl.training.fit import fit
from icrl.training.program import RunContext
from icrl.training.updates import Updater

WINDOWS, BOUND = 2, 4.0
ends = st.lists(st.integers(0, 3), min_size=WINDOWS * LENGTH, max_size=WINDOWS * LENGTH)  # 1: terminated, 2: truncated


def batch_with(flags: list[int], seed: int = 0) -> Batch:
    return batch_of(WINDOWS, LENGTH, seed, [flag & 1 for flag in flags], [flag >> 1 for flag in flags])


def open_ends(batch: Batch, row: int) -> list[int]:
    """Steps that are truncated, not terminated, and not the last: one of them is drawn."""
    return [t for t in range(LENGTH - 1) if batch.truncated[row, t] and not batch.terminated[row, t]]


def drawn(counts: Tensor, batch: Batch) -> list[int]:
    """The truncation of each window that the objective drew, as its counts show; -1 if there is none."""
    candidates = [open_ends(batch, row) for row in range(len(batch.obs))]
    counted = [[t for t in ends if counts[row, t] > 0] for row, ends in enumerate(candidates)]
    assert [len(ends) for ends in counted] == [min(1, len(ends)) for ends in candidates]
    return [ends[0] if ends else -1 for ends in counted]


def expected_targets(critic: Critic, batch: Batch, chosen: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Backups and counts `[B, T]`, step by step."""
    config, target = critic.config, critic.target
    with torch.no_grad():
        value = target(shown(batch)).value.tolist()
    backups, counts = np.zeros(batch.obs.shape), np.zeros(batch.obs.shape)
    for row, t in itertools.product(range(len(batch.obs)), reversed(range(LENGTH))):
        terminated, truncated = bool(batch.terminated[row, t]), bool(batch.truncated[row, t])
        is_last, local = t == LENGTH - 1, config.horizon == "episode"
        following, count = (0.0, 0.0) if is_last else (value[row][t + 1], 1.0)
        if local and terminated:
            following = 0.0
        elif local and truncated and not is_last:
            following, count = 0.0, 0.0
            if t == chosen[row]:
                following, count = value_at_the_end(target, batch, row, t), len(open_ends(batch, row))
        elif not is_last and counts[row, t + 1]:  # the next return says more than V
            following += config.return_lambda * (backups[row, t + 1] - following)
        backups[row, t] = float(batch.training_reward[row, t]) + config.discount_factor * following
        counts[row, t] = count
    return backups, counts


def expected_terms(critic: Critic, batch: Batch, backups: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    config, steps = critic.config, len(batch.obs) * LENGTH
    with torch.no_grad():
        online, slow = critic.online(shown(batch)), critic.target(shown(batch))
    names = ("q1", "q2", "value", "conservative", "td_error", "q", "v", "above_value")
    sums = dict.fromkeys(names, 0.0)
    for row, t in itertools.product(range(len(batch.obs)), range(LENGTH)):
        action, count, v = int(batch.action[row, t]), counts[row][t], float(online.value[row, t])
        for i in range(2):
            q = online.q[i, row, t].tolist()
            error = backups[row][t] - q[action]
            sums[f"q{i + 1}"] += count * error**2
            sums["td_error"] += count * abs(error) / 2
            sums["conservative"] += (t < LENGTH - 1) * (math.log(sum(math.exp(x) for x in q)) - q[action]) / 2
            sums["q"] += q[action] / 2
        above = min(float(slow.q[i, row, t, action]) for i in range(2)) - v
        sums["value"] += (t < LENGTH - 1) * (config.expectile if above >= 0 else 1 - config.expectile) * above**2
        sums["above_value"] += above > 0
        sums["v"] += v
    usable, largest = max(counts.sum(), 1.0), online.q.abs().max().item()
    counted = dict.fromkeys(("q1", "q2", "td_error"), usable)
    counted |= dict.fromkeys(("value", "conservative"), len(batch.obs) * (LENGTH - 1))
    means = {name: total / counted.get(name, steps) for name, total in sums.items()}
    return means | {"largest_q": largest, "q_over_bound": largest / BOUND}


SCALINGS = {"conservative_scaling": 0.3, "v_loss_scaling": 0.6}
ACROSS, MAX = {"horizon": "across_episodes"}, {"backup": "max", "v_loss_scaling": 0.0}
FORMS = {
    "ilql": SCALINGS | {"horizon": "episode", "return_lambda": 0.6},
    "ilql across episodes": ACROSS | {"conservative_scaling": 0.0, "return_lambda": 0.7},
    "iql across episodes": ACROSS | {"separate_value": True},
    "iql": {"horizon": "episode", "separate_value": True, "expectile": 0.5},
    "iql of returns": {"horizon": "episode", "return_lambda": 1.0},
    "cql": MAX | {"conservative_scaling": 1.0, "horizon": "episode"},
    "cql across episodes": MAX | ACROSS | {"return_lambda": 0.7},
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=8)
@given(flags=ends, seed=st.integers(0, 99))
def test_every_term_and_metric_equals_a_loop_over_steps(form: str, flags: list[int], seed: int) -> None:
    critic, batch = critic_of(critic=FORMS[form]).eval(), batch_with(flags, seed)
    objective, config = ImplicitQLearning(critic, BOUND), critic.config
    torch.manual_seed(seed)
    chosen = drawn(objective.targets(batch)[2], batch) if config.horizon == "episode" else []
    torch.manual_seed(seed)
    terms, metrics = objective(critic, batch)
    expected = expected_terms(critic, batch, *expected_targets(critic, batch, chosen))
    weights = {"q1": 1.0, "q2": 1.0, "value": config.v_loss_scaling, "conservative": config.conservative_scaling}
    assert objective.weights == {term: weight for term, weight in weights.items() if weight}
    assert terms.keys() == objective.weights.keys() and metrics.keys() == expected.keys() - weights.keys()
    for name, value in (terms | metrics).items():
        assert value.item() == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name
    assert not any(metric.requires_grad for metric in metrics.values())


def test_each_truncation_of_a_window_is_chosen_about_as_often() -> None:
    """It counts for all of them, so that the mean leaves none out."""
    truncated = [int(t in (1, 2, 5)) for t in range(LENGTH)] * 600
    torch.manual_seed(0)
    critic = critic_of(critic={"horizon": "episode"})
    counts = ImplicitQLearning(critic).targets(batch_of(600, LENGTH, truncated=truncated))[2]
    assert set(counts[:, (1, 2, 5)].unique().tolist()) == {0.0, 3.0} and (counts[:, (1, 2, 5)].sum(1) == 3).all()
    assert counts.mean(0).tolist() == pytest.approx([1, 1, 1, 1, 1, 1, 0], abs=0.2)


def test_without_a_usable_step_or_any_reward_nothing_is_divided_by_zero() -> None:
    critic = critic_of(critic={"horizon": "episode"})
    terms, metrics = ImplicitQLearning(critic, value_bound(critic.config, 0.0))(critic, batch_of(1, 1))
    assert terms["q1"] == terms["q2"] == metrics["q_over_bound"] == 0


def test_each_term_reaches_its_own_head_and_trunk() -> None:
    """Heads share nothing but the trunk, unlike in a dueling form."""
    for term, head in {"q1": "q_heads.0.", "q2": "q_heads.1.", "value": "value_head."}.items():
        critic = critic_of(critic={"separate_value": True})
        ImplicitQLearning(critic)(critic, batch_of())[0][term].backward()
        found = ((name, parameter.grad) for name, parameter in critic.online.named_parameters())
        reached = {name for name, grad in found if grad is not None and grad.any()}
        in_trunk = {name for name in reached if name.startswith("value_trunk." if term == "value" else "trunk.")}
        assert in_trunk and reached - in_trunk == {name for name in critic.online.state_dict() if name.startswith(head)}


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_targets_see_no_dropout_and_carry_no_gradient(part: str) -> None:
    """Dropout is on in the trained network. With one truncation in a window nothing is drawn."""
    critic = critic_of(**{part: {"dropout": 0.5}}, critic={"horizon": "episode"}).train()
    batch = batch_with([0, 2, 0, 1, 0, 0, 0] * WINDOWS)
    objective = ImplicitQLearning(critic)
    assert not torch.equal(critic(shown(batch)).value, critic(shown(batch)).value)
    first, second = objective.targets(batch), objective.targets(batch)
    assert not any(target.requires_grad for target in first)
    critic.eval()
    for one, two, quiet in zip(first, second, objective.targets(batch), strict=True):
        assert torch.equal(one, two) and torch.equal(one, quiet)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_targets_follow_at_their_rate_by_optimizer_steps_and_not_by_parts(rate: float) -> None:
    config = config_of(trainer={"gradient_accumulation_steps": 2}, critic={"target_update_rate": rate})
    critic = fresh_critic(config).train()
    updater = Updater(critic, ImplicitQLearning(critic), config, CPU, Ranks(), critic.after_update)
    slow, fast = (network.q_heads[0][0].weight for network in (critic.target, critic.online))
    first = slow.clone()
    for update in range(7):
        before = slow.clone()
        updater.update(batch_of(4, seed=update), Clock(update / 10, update, 0, update))
        torch.testing.assert_close(slow, torch.lerp(before, fast.detach(), rate))
        assert rate < 1 or torch.equal(slow, fast)
    assert critic.updates == 7 and not torch.equal(slow, first)


@pytest.mark.parametrize("size", [1e4, 1e8])
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
    torch.stack(list(terms.values())).sum().backward()
    found = [parameter.grad for parameter in critic.parameters() if parameter.grad is not None]
    assert all(value.isfinite().all() for value in (*terms.values(), *metrics.values(), *found))
    assert metrics["largest_q"] > size / 2


def test_the_bound_of_values() -> None:
    """For rewards of at most 2."""
    for discount, expected in ((0.9, 20.0), (1.0, math.inf), (0.5, 4.0)):
        assert value_bound(config_of(critic={"discount_factor": discount}).critic, 2.0) == pytest.approx(expected)


# ---- implicit Q-learning on a world whose values are known by dynamic programming

OPTIONS = (
    *("env=tiny_room", "env.size=3", "env.max_episode_steps=6", "tasks.num_train=3", "data.num_development_tasks=0"),
    *("model.context_len=6", "model.embed_dim=16", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=32"),
    *("model.position=env_time", "model.obs_encoding=cell", "data.kept_steps=0", "trainer.evaluate=false"),
    *("critic=ilql", "critic.conservative_scaling=0", "critic.return_lambda=0", "critic.target_update_rate=0.3"),
    *("optimizer=adamw", "optimizer.weight_decay=0"),
    "optimizer.learning_rate={kind: linear, progress: percent, points: [[0, 0.01], [0.5, 0.01], [1, 0.0005]]}",
)
WORLD = compose_config(OfflineConfig, OPTIONS)
ENV, SIZE, LIMIT, GOAL, START = make_env(WORLD.env), 3, 6, 1, 4  # the goal is at most two moves away


def windows_of(played: Rollout, number: int) -> Batch:
    """Random windows `[number, 6]` of what streams played, `[T, B]`."""
    num_steps, num_streams = played.obs.shape
    stream, start = torch.randint(num_streams, (number, 1)), torch.randint(num_steps - 5, (number, 1))
    window = {name: column[start + torch.arange(6), stream] for name, column in played._asdict().items()}
    return Batch(**window, weight=torch.ones(number, 6), training_reward=window["reward"])


def expectile_of(values: list[float], expectile: float) -> float:
    """The v at which the weighted sum of (value - v) is 0."""
    v = np.mean(values)
    for _ in range(20):
        v = np.average(values, weights=np.where(np.array(values) >= v, expectile, 1 - expectile))
    return float(v)


def exact_values(config: OfflineConfig, value_of: Callable[[list[float]], float]) -> tuple[Tensor, Tensor]:
    """Q `[time, cell, action]` and V `[time, cell]` by dynamic programming; V is `value_of` the Q of a cell."""
    critic, to = config.critic, next_cells(SIZE).view(SIZE**2, 5).tolist()
    q, value = np.zeros((LIMIT, SIZE**2, 5)), np.zeros((LIMIT, SIZE**2))
    for _ in range(30):
        for time, cell, action in np.ndindex(q.shape):
            led = to[cell][action]
            won, over = led == GOAL, led == GOAL or time == LIMIT - 1
            following = value[min(time + 1, LIMIT - 1), led]  # within an episode the clock is no end
            if critic.horizon == "episode":
                following *= not won
            elif over:
                following = value[0, START]
            q[time, cell, action] = float(won) + critic.discount_factor * following
        value = np.array([[value_of(of_cell) for of_cell in of_time] for of_time in q.tolist()])
    return torch.from_numpy(q), torch.from_numpy(value)


@pytest.mark.parametrize(
    ("backup", "horizon", "expectile"),
    [pytest.param("max", "episode", 0.5, marks=pytest.mark.long), ("expectile", "across_episodes", 0.9)],
)
def test_values_of_a_small_world_become_the_true_ones(backup: str, horizon: str, expectile: float) -> None:
    """Error over the actions, cells and times of random play: 2 % of the largest value on average, at most 8 %."""
    form = {"backup": backup, "v_loss_scaling": float(backup == "expectile"), "expectile": expectile}
    form |= {"horizon": horizon, "discount_factor": 0.6}
    config = config_of(WORLD, critic=form)
    played, _ = play(Chance(ENV.spec), ENV, torch.full((1000, 1), GOAL), 40)
    torch.manual_seed(0)
    critic = fresh_critic(config, ENV.spec).train()
    updater = Updater(critic, ImplicitQLearning(critic), config, CPU, Ranks(), critic.after_update)
    for update in range(500):
        updater.update(windows_of(played, 64), Clock(update / 500, update, 0, update))
    seen = windows_of(played, 400)
    with torch.no_grad():
        values = critic.eval().target(shown(seen))
    q, value = values.q.mean(0).gather(-1, seen.action[..., None])[..., 0], values.value
    true_q, true_value = exact_values(config, max if backup == "max" else lambda q: expectile_of(q, expectile))
    time, cell, action = seen.timestep, seen.obs, seen.action
    for error in (q - true_q[time, cell, action], value - true_value[time, cell]):
        assert error.abs().mean() < 0.02 * true_q.max() and error.abs().max() < 0.08 * true_q.max()


def test_values_are_right_at_every_position_of_a_window_whose_positions_are_learned() -> None:
    """For a reward of 1 at every step they are 1 / (1 - gamma). No target reaches the last position."""
    critic_options = {"horizon": "across_episodes", "return_lambda": 0.0, "discount_factor": 0.9, "expectile": 0.8}
    torch.manual_seed(0)
    critic = fresh_critic(config_of(encoder={"position": "learned"}, critic=critic_options)).train()
    objective, optimizer = ImplicitQLearning(critic), torch.optim.Adam(critic.online.parameters(), 5e-3)
    for update in range(400):
        batch = batch_of(16, LENGTH, update, [0] * 16 * LENGTH, [0] * 16 * LENGTH)
        terms, _ = objective(critic, batch._replace(training_reward=torch.ones(16, LENGTH)))
        optimizer.zero_grad()
        torch.stack([objective.weights[name] * term for name, term in terms.items()]).sum().backward()
        optimizer.step()
        critic.after_update()
    with torch.no_grad():
        values = critic.eval().target(shown(batch_of(100, LENGTH, 999)))
    for found in (values.value.mean(0), values.q.mean((0, 1, 3))):
        assert torch.allclose(found, torch.full((LENGTH,), 10.0), atol=0.5), found


# ---- critics whose values diverge: what is refused, and what is said


def fit_critic(folder: Path, bound: float = math.inf, reward: float = 1.0) -> None:
    """Four updates of a small critic; rewards are `reward` times as large."""
    config = critics.config_of(trainer={"num_iterations": 4}, summaries={"summary_interval": 1})
    model = critics.fresh_critic(config)
    objective = ImplicitQLearning(model, bound)

    def batches(update: int) -> Batch:
        batch = critics.batch_of(4, seed=update)
        return batch._replace(training_reward=reward * batch.training_reward)

    context = RunContext(config, folder, CPU, Ranks(), {"program": "train_ilql", "run": "f00d"}, [])
    fit(context, model, objective, batches, look, after_step=model.after_update)


def test_terms_that_overflow_are_named_with_what_to_lower(tmp_path):
    expected = r"train_ilql, in update 1: loss, q1, q2, gradient_norm not finite.* lower critic\.discount_factor, "
    with pytest.raises(DivergedError, match=expected):
        fit_critic(tmp_path, reward=1e30)
    assert not steps_of(tmp_path)


@pytest.mark.parametrize(("bound", "warnings"), [(1e-3, 1), (1e3, 0)])
def test_values_over_their_bound_are_warned_of_once(tmp_path, capsys, bound, warnings):
    fit_critic(tmp_path, bound)
    over = [float(value) > 1 for _, value in curves(tmp_path)["train/q_over_bound"]]
    assert over == [bool(warnings)] * 4
    told = [line for line in capsys.readouterr().out.splitlines() if "largest |Q|" in line]
    assert len(told) == warnings and all(line.startswith("update 1: ") for line in told)


# ---- data parallel training of critics: one run of `torchrun` with two processes (`parallel_critics.py`)

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@needs("scaling")
@pytest.mark.long
def test_two_processes_learn_the_values_that_one_learns(tmp_path):
    """And their slow copies; both have the same parameters after every update."""
    ended = subprocess.run([*TORCHRUN, str(PROJECT / "tests/helpers/parallel_critics.py"), str(tmp_path)], check=False)
    assert ended.returncode == 0
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [one["critic"] for one in ranks] == ["", ""]
    assert critic(tmp_path / "alone", Ranks()) == ""
    theirs, ours = weights_of(tmp_path / "alone"), weights_of(tmp_path / "critic")
    assert theirs["updates"] == ours["updates"] == 6
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
