"""Fixed players of the learner's own side, who read the position from what a stream shows."""

from typing import Any

import pytest
import scalar_points as scalar
import torch
from point_worlds import legal_in, lived, point_config, point_game

from icrl.config.compose import load_config
from icrl.envs.rollout import rollout, start_streams
from icrl.evaluation.references import references_of
from icrl.point_game.references import fixed_players
from icrl.randomness import Noise, stream_seeds

CLOUDS = [{"max_num_points": 5, "max_value": 4}, {"max_num_points": 8, "max_value": 9}]
OPTIONS: dict[str, dict[str, Any]] = {
    "host": {"dimensions": [4], "clouds": CLOUDS, "opponents": ["tables_3", "random"], "max_episode_steps": 20},
    "agent": {"role": "agent", "dimensions": [4], "clouds": CLOUDS, "opponents": ["zeillinger", "random_subset"]},
}


def test_hosts_play_what_plain_python_says() -> None:
    env, config = point_game(**OPTIONS["host"]), point_config(**OPTIONS["host"])
    tasks = env.all_tasks().repeat(5, 1)
    players, table, noise = fixed_players(env, config), scalar.subsets(4), torch.linspace(0, 0.999, len(tasks))
    assert list(players) == ["Zeillinger", "Weak Spivakovsky"]
    for _, _, step in lived(env, tasks, stream_seeds(0, len(tasks)), 8):
        positions = [scalar.left(scalar.rows_of(rows)) for rows in env.points_of(step.obs).tolist()]
        for name, player in players.items():
            action, carry = player.act((), step, noise)
            assert carry == () == player.initial_carry(3)
            for points, chosen, luck in zip(positions, action.tolist(), noise.tolist(), strict=True):
                hitting = scalar.smallest_hitting_sets(points)
                expected = min(scalar.zeillinger_keys(points), key=lambda key: key[:2])[2]
                expected = hitting[int(luck * len(hitting))] if name == "Weak Spivakovsky" else expected
                assert table[chosen] == expected


def test_agents_play_the_first_and_the_last_of_the_subset() -> None:
    env, config = point_game(**OPTIONS["agent"]), point_config(**OPTIONS["agent"])
    tasks = env.all_tasks().repeat(5, 1)
    players = fixed_players(env, config)
    assert list(players) == ["First", "Last"]
    for state, _, step in lived(env, tasks, stream_seeds(0, len(tasks)), 8):
        subsets = [scalar.subsets(4)[subset] for subset in state.subset.tolist()]
        for name, extreme in (("First", min), ("Last", max)):
            action, _ = players[name].act((), step, torch.zeros(len(tasks)))
            assert action.tolist() == [extreme(subset) for subset in subsets]


@pytest.mark.parametrize("role", OPTIONS)
def test_they_are_played_beside_chance_and_do_better(role: str) -> None:
    """Always by a legal action; the hosts win far more games than chance in as many steps."""
    env = point_game(**OPTIONS[role])
    config = load_config(["experiment=point_game", "evaluation.num_episodes=4"])
    config.env = point_config(**OPTIONS[role])
    references = references_of(env, config)
    assert list(references) == ["random", *fixed_players(env, point_config(**OPTIONS[role]))]
    tasks = env.all_tasks().repeat(10, 1)
    ends = {}
    for name, policy in references.items():
        streams = start_streams(policy, env, tasks, stream_seeds(0, len(tasks)))
        steps, _ = rollout(policy, env, streams, 60, Noise(stream_seeds(1, len(tasks))))
        assert legal_in(env, steps.obs).gather(-1, steps.action[..., None]).all()
        ends[name] = int(steps.terminated.sum())
    if role == "host":
        assert min(ends["Zeillinger"], ends["Weak Spivakovsky"]) > 1.3 * ends["random"]


def test_there_are_none_where_they_would_have_to_be_told_the_dimension() -> None:
    options = {**OPTIONS["host"], "dimensions": [3, 4]}
    assert fixed_players(point_game(**options), point_config(**options)) == {}
