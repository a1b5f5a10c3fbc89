"""The point game as a family of tasks, against one stream at a time in plain Python."""

from typing import Any

import pytest
import scalar_points as scalar
import torch
from point_worlds import legal_in, lived, point_config, point_game
from scalar_family import Stream
from torch import Tensor

from icrl.config.env_schema import PointGameConfig
from icrl.contracts import Rollout, Step
from icrl.envs.episodes import OpenEpisodes, finished_episodes
from icrl.point_game.fixed_players import HOSTS
from icrl.point_game.rules import PADDING, canonical
from icrl.point_game.world import GamesState, PointFamily
from icrl.randomness import mix, stream_seeds

CLOUDS = [{"max_num_points": 5, "max_value": 4}, {"max_num_points": 8, "max_value": 9}]
WORLDS: dict[str, dict[str, Any]] = {
    "host": {"opponents": ["random", "first", "last@0.5", "order_2013", "tables_3", "table_8@0.25", "order_3210@1"]},
    "agent": {
        "role": "agent",
        "opponents": [*HOSTS, "zeillinger@0.3", "spivakovsky@0.6", "weak_spivakovsky@0.4", "all_coordinates@1"],
    },
}
MANY: dict[str, Any] = {"dimensions": [4, 2, 3], "clouds": CLOUDS}


def assert_same(ours: tuple[GamesState, Tensor, Step], theirs: tuple[GamesState, Tensor, Step], where: Any) -> None:
    for mine, yours in zip((*ours[0], ours[1], *ours[2]), (*theirs[0], theirs[1], *theirs[2]), strict=True):
        assert torch.equal(mine[where], yours)


@pytest.mark.parametrize("role", WORLDS)
def test_every_step_is_that_of_plain_python(role: str) -> None:
    """All opponents, dimensions and clouds side by side; a stream that Python plays alone in its own dimension."""
    config = point_config(**WORLDS[role], **MANY)
    env = PointFamily(config)
    tasks = env.all_tasks()
    tasks = tasks[torch.randperm(len(tasks), generator=torch.Generator().manual_seed(1))]
    seeds = stream_seeds(3, len(tasks))
    rows = lived(env, tasks, seeds, 30)
    streams = [
        Stream(role, env.opponents[who].name, dimension, CLOUDS[cloud], seed, env.spec.points, 6)
        for (who, dimension, cloud), seed in zip(tasks.tolist(), seeds.tolist(), strict=True)
    ]
    assert rows[0][2].obs.tolist() == [stream.obs for stream in streams]
    ends: set[tuple[bool, bool]] = set()
    for _, action, step in rows[1:]:
        columns = [column.tolist() for column in step[:-1]]
        for stream, move, *shown in zip(streams, action.tolist(), *columns, strict=True):
            seen = stream.step(move)
            obs, reward, terminated, truncated, final_obs, timestep = shown
            assert (terminated, truncated) == (seen.terminated, seen.truncated)
            assert (obs, final_obs, reward, timestep) == (seen.obs, seen.final_obs, seen.reward, seen.timestep)
            ends.add((terminated, truncated))
        assert (step.optimal_action == env.spec.num_actions).all()
    assert len(ends) == 4  # both at once too: over with the last move that there was
    assert {dimension for _, dimension, _ in tasks.tolist()} == {2, 3, 4}


@pytest.mark.parametrize("role", WORLDS)
def test_a_game_of_two_coordinates_is_the_same_among_four(role: str) -> None:
    """Also of an opponent whose table has many more subsets."""
    names = ["table_0", "table_1@0.5", "first", "last", "random"] if role == "host" else ["zeillinger", "random_subset"]
    config: dict[str, Any] = {"role": role, "opponents": names, "clouds": CLOUDS}
    alone, among = point_game(**config, dimensions=[2]), point_game(**config, dimensions=[3, 2, 4])
    tasks = alone.all_tasks().repeat(6, 1)
    seeds = stream_seeds(5, len(tasks))
    for (_, _, theirs), (_, _, ours) in zip(*(lived(env, tasks, seeds, 25) for env in (alone, among)), strict=True):
        for name in ("reward", "terminated", "truncated", "timestep"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        for small, large in ((theirs.obs, ours.obs), (theirs.final_obs, ours.final_obs)):
            few, many = alone.points_of(small), among.points_of(large)
            assert torch.equal(many[..., :2], few)
            assert torch.equal(many[..., 2:], few[..., :1].clamp(max=0).expand(*few.shape[:-1], 2))
            assert torch.equal(large[:, 8 * 4 : 8 * 4 + 2], small[:, 8 * 2 : 8 * 2 + 2])  # who answered what


@pytest.mark.parametrize("role", WORLDS)
def test_a_stream_does_not_depend_on_the_others_and_repeats(role: str) -> None:
    env = point_game(**WORLDS[role], **MANY)
    tasks = env.all_tasks()
    seeds = stream_seeds(0, len(tasks))
    whole = lived(env, tasks, seeds, 20)
    for some in (torch.tensor([len(tasks) - 1, 3, 8]), torch.arange(1), torch.arange(len(tasks))):
        other = point_game(**WORLDS[role], **MANY)
        for row, alone in zip(whole, lived(other, tasks[some], seeds[some], 20), strict=True):
            assert_same(row, alone, some)


@pytest.mark.parametrize("role", WORLDS)
def test_a_life_goes_on_from_any_state(role: str) -> None:
    """Played on from a copy of what the state holds, and without a change to what it held before."""
    env = point_game(**WORLDS[role], **MANY)
    tasks = env.all_tasks()
    seeds = stream_seeds(1, len(tasks))
    rows = lived(env, tasks, seeds, 12)
    kept = [[column.clone() for column in state] for state, _, _ in rows]
    state = GamesState(*(column.clone().contiguous() for column in rows[4][0]))
    again = point_game(**WORLDS[role], **MANY)
    for row in rows[5:]:
        after = again.step(state, row[1])
        assert_same(row, (after[0], row[1], after[1]), slice(None))
        state = after[0]
    for (state, _, _), before in zip(rows, kept, strict=True):
        assert all(torch.equal(column, old) for column, old in zip(state, before, strict=True))


def test_games_and_streams_have_starts_of_their_own() -> None:
    env = point_game(dimensions=[3], clouds=[{"max_num_points": 8, "max_value": 9}], max_episode_steps=1)
    seeds = stream_seeds(2, 300)
    rows = lived(env, env.all_tasks().expand(300, 3), seeds, 3)
    obs = torch.cat([step.obs for _, _, step in rows])
    assert len(obs.unique(dim=0)) > 1190
    assert torch.equal(rows[0][2].obs, env.reset(env.all_tasks().expand(300, 3), seeds)[1].obs)


# ---- what is seen


@pytest.mark.parametrize("role", WORLDS)
def test_an_observation_shows_the_position_and_nothing_else(role: str) -> None:
    env = point_game(**WORLDS[role], **MANY)
    rows, width = env.spec.points
    assert (rows, width) == (8, 4) and env.spec.num_actions == (11 if role == "host" else 4)
    assert env.spec.obs_shape == (rows * width + width + env.spec.num_actions,)
    tasks = env.all_tasks()
    for state, _, step in lived(env, tasks, stream_seeds(0, len(tasks)), 20):
        points = env.points_of(step.obs)
        assert torch.equal(points, canonical(state.points))
        assert ((points == PADDING).any(-1) == (points == PADDING).all(-1)).all()
        for position in points.tolist():
            left = scalar.left(scalar.rows_of(position))
            assert left == sorted(left, reverse=True) and len(left) >= 2
        answered = step.obs[:, rows * width : (rows + 1) * width]
        assert torch.equal(answered.sum(1), (step.timestep > 0).long())
        legal = legal_in(env, step.obs)
        if role == "host":
            beyond = torch.tensor([[max(subset) >= size for subset in scalar.subsets(4)] for size in range(5)])
            assert torch.equal(legal, ~beyond[tasks[:, 1]])
        else:
            assert (legal.sum(1) >= 2).all()
            assert all(flags.nonzero().max() < size for flags, size in zip(legal, tasks[:, 1], strict=True))


# ---- rules


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        ({"dimensions": [2, 4]}, 1),  # {0, 2} in a game of two coordinates
        ({"dimensions": [2, 4]}, 10),
        ({"role": "agent", "opponents": ["random_pair"], "dimensions": [3]}, None),
    ],
)
def test_what_is_not_legal_is_an_error(options: dict[str, Any], bad: int | None) -> None:
    env = point_game(**options)
    state, step = env.reset(env.all_tasks()[:1].expand(3, 3), stream_seeds(0, 3))
    legal = legal_in(env, step.obs)
    action = legal.long().argmax(1)
    env.step(state, action)
    action[1] = int((~legal[1]).nonzero()[0]) if bad is None else bad
    with pytest.raises(ValueError, match="an action is not legal"):
        env.step(state, action)


@pytest.mark.parametrize("role", WORLDS)
def test_an_episode_is_a_success_for_the_side_that_wanted_its_end(role: str) -> None:
    env = point_game(**WORLDS[role], **MANY)
    tasks = env.all_tasks()
    rows = lived(env, tasks, stream_seeds(2, len(tasks)), 25)
    shown = [step for _, _, step in rows]
    transitions = Rollout(
        obs=torch.stack([step.obs for step in shown[:-1]]),
        action=torch.stack([action for _, action, _ in rows[1:]]),
        reward=torch.stack([step.reward for step in shown[1:]]),
        next_obs=torch.stack([step.final_obs for step in shown[1:]]),
        timestep=torch.stack([step.timestep for step in shown[:-1]]),
        terminated=torch.stack([step.terminated for step in shown[1:]]),
        truncated=torch.stack([step.truncated for step in shown[1:]]),
        optimal_action=torch.stack([step.optimal_action for step in shown[1:]]),
    )
    episodes, _ = finished_episodes(transitions, OpenEpisodes.none(len(tasks)), env.spec)
    expected = []
    for stream in range(len(tasks)):
        length = 0
        for over, late in zip(
            transitions.terminated[:, stream].tolist(), transitions.truncated[:, stream].tolist(), strict=True
        ):
            length += 1
            if over or late:
                returns = float(over) if role == "host" else float(length - over)
                expected.append((stream, returns, over if role == "host" else not over, length))
                length = 0
    columns = (episodes.stream, episodes.returns, episodes.success, episodes.length)
    assert [*zip(*(column.tolist() for column in columns), strict=True)] == expected
    assert 10 < sum(episodes.success) < len(expected) - 10


def test_sizes_follow_from_the_options() -> None:
    config: PointGameConfig = point_config(dimensions=[5, 3], clouds=CLOUDS, max_episode_steps=7)
    env = PointFamily(config)
    assert env.spec._asdict() == {
        "num_obs": 9 * 5 * 2**7 + 2,
        "num_actions": 26,
        "reward_values": (0.0, 1.0),
        "width": 0,
        "max_episode_steps": 7,
        "success": "end",
        "points": (8, 5),
    }
    agent = point_game(role="agent", opponents=["zeillinger"], dimensions=[5]).spec
    assert (agent.num_actions, agent.success) == (5, "survival")
    assert env.task_columns == ("opponent", "dimension", "cloud") and not env.has_planner
    assert mix(torch.tensor(7), 3) != mix(torch.tensor(7), 4)
