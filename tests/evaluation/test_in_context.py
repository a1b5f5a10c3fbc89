"""The in-context protocol against walks through single steps."""

import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from icrl.app.compose import load_config
from icrl.contracts import Rollout
from icrl.data.columns import rollout_of
from icrl.data.history_store import Histories
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.evaluation import in_context
from icrl.evaluation.in_context import Adaptation, adaptation_of, play_episodes, source_adaptation
from icrl.runs.processes import Progress
from icrl.spaces import EnvSpec, discrete_spec

RANDOM = Chance(make_env(load_config(["env.size=3"]).env).spec)  # of five actions
CLASSIC = make_env(load_config(["env=dark_room_classic", "env.size=3", "env.max_episode_steps=6"]).env)


def scalar_adaptation(transitions: Rollout, num_episodes: int) -> np.ndarray:
    """Return, success, steps to goal and length of each stream's episodes, by a walk through the steps: [4, B, E].
    A success is a reward above 0; other kinds are in `envs/test_rollout.py`."""
    num_steps, num_streams = transitions.obs.shape
    found = np.zeros((4, num_streams, num_episodes))
    for b in range(num_streams):
        episode, total, length, first = 0, 0.0, 0, None
        for t in range(num_steps):
            value, length = float(transitions.reward[t, b]), length + 1
            total += value
            if value > 0 and first is None:
                first = length
            if transitions.terminated[t, b] or transitions.truncated[t, b]:
                if episode < num_episodes:
                    found[:, b, episode] = total, first is not None, first or length, length
                episode, total, length, first = episode + 1, 0.0, 0, None
        assert episode >= num_episodes
    return found


def test_episodes_are_cut_where_they_end() -> None:
    adaptation, played = play_episodes(RANDOM, CLASSIC, CLASSIC.all_tasks()[:4], num_streams=3, num_episodes=7, seed=1)
    np.testing.assert_allclose(np.stack(adaptation), scalar_adaptation(played, 7).reshape(4, 4, 3, 7))
    assert 0 < adaptation.success.mean() < 1


def test_streams_are_grouped_by_task_and_independent_of_others() -> None:
    env = make_env(load_config(["env.size=5"]).env)
    tasks = env.all_tasks()[[0, 7, 23]]
    optimal = Mock(initial_carry=lambda _: (), act=lambda carry, step, noise: (step.optimal_action, carry))
    best, _ = play_episodes(optimal, env, tasks, num_streams=2, num_episodes=3, seed=0)
    distance = [abs(goal // 5 - 2) + abs(goal % 5 - 2) for goal in tasks[:, 0].tolist()]
    assert best.steps_to_goal.tolist() == [[[d] * 3] * 2 for d in distance]
    many, few = (play_episodes(RANDOM, env, tasks[:number], 1, 5, seed=3)[0] for number in (3, 2))
    np.testing.assert_array_equal(np.stack(few), np.stack(many)[:, :2])


@pytest.mark.parametrize(("num_episodes", "steps"), [(1, 6), (10, 60), (11, 64 + 6)])
def test_the_largest_number_of_steps(num_episodes: int, steps: int, capsys: pytest.CaptureFixture[str]) -> None:
    """In streams where only the clock ends episodes, after 6 steps. `play_steps` plays the same steps."""
    tasks = CLASSIC.all_tasks()[:2]
    with Progress("play", num_episodes, 0, "episode") as progress:
        _, played = play_episodes(RANDOM, CLASSIC, tasks, 3, num_episodes, seed=0, progress=progress)
    shares = re.findall(r"play +(\d+)%", capsys.readouterr().out)
    assert shares == ([] if num_episodes == 1 else ["100"] if steps < 64 else ["91", "100"])
    assert len(played.obs) == steps
    again = in_context.play_steps(RANDOM, CLASSIC, tasks, 3, steps - 1, seed=0)
    assert all(torch.equal(whole[:-1], part) for whole, part in zip(played, again, strict=True))
    with pytest.raises(ValueError, match="1000 finished episodes"):
        adaptation_of(played, 2, 1000, CLASSIC.spec)


def histories_of(spec: EnvSpec, num_learners: int, columns: dict[str, np.ndarray]) -> Histories:
    """Histories of two tasks, or of one with a single learner; missing columns are 0."""
    nothing = np.zeros_like(next(iter(columns.values())))
    rows = {"num_learners": num_learners, "num_envs": 1}
    tasks = {"all": [[task % 3] for task in range(9)], "train": [7, 4][:num_learners]}  # of which some are equal
    manifest = {"tasks": tasks, "rows": rows, "env": spec.to_json()}
    return Histories(Path(), manifest, dict.fromkeys(Rollout._fields, nothing) | columns)


@pytest.mark.parametrize("limit", [1, 3])
def test_source_agents_are_seen_at_both_ends_of_their_lives(limit: int) -> None:
    """Two tasks with two rows each, of which the first counts: its first three whole episodes and its last three."""
    rng = np.random.default_rng(0)
    spec = discrete_spec(1, 2, (-1.0, 0.5, 2.0), 0, limit, "reward")
    shape = (4, 40)
    time = np.broadcast_to(np.arange(40) % limit, shape)
    columns = {"action": rng.integers(2, size=shape), "reward": rng.integers(3, size=shape), "timestep": time}
    histories = histories_of(spec, 2, columns | {"truncated": time == limit - 1})
    first, last = source_adaptation(histories, [7, 4], num_streams=1, num_episodes=3)
    rows = rollout_of(spec, {name: column[::2].T for name, column in histories.columns.items()})
    whole = scalar_adaptation(rows, 40 // limit).reshape(4, 2, -1)
    np.testing.assert_array_equal(np.stack(first)[:, :, 0], whole[..., :3])
    np.testing.assert_array_equal(np.stack(last)[:, :, 0], whole[..., -3:])
    alone, _ = source_adaptation(histories, [4], 1, 3)
    np.testing.assert_array_equal(np.stack(alone), np.stack(first)[:, 1:])


def test_the_end_of_a_life_is_its_end_after_episodes_got_short() -> None:
    """Episodes of 6 steps at first, then of 1, each with its number as its return; the last stays unfinished."""
    spec = discrete_spec(1, 2, tuple(float(value) for value in range(40)), 0, 6, "best_action")
    done = np.zeros((1, 60), bool)
    done[0, [*range(5, 36, 6), *range(40, 59)]] = True
    number = np.cumsum(done, axis=1) - done
    histories = histories_of(spec, 1, {"terminated": done, "reward": number * done})
    first, last = source_adaptation(histories, [7], num_streams=1, num_episodes=4)
    assert first.returns.ravel().tolist() == [0, 1, 2, 3]
    assert last.returns.ravel().tolist() == [21, 22, 23, 24]


def test_the_summary_by_hand() -> None:
    returns = np.array([[[0.0, 1.0, 1.0], [1.0, 0.0, 3.0]]])
    lengths = np.array([[[9.0, 5.0, 3.0], [9.0, 9.0, 3.0]]])
    expected = {"first_success": 0.5, "first_return": 0.5, "last_success": 1.0, "last_return": 2.0}
    found = in_context.summary_of(Adaptation(returns, (returns > 0).astype(float), lengths, lengths))
    assert found == expected | {"late_reward": 5 / 20}
