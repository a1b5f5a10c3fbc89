"""Opponents of the point game: what their names stand for, how they play, and which tasks they make."""

import itertools
from typing import Any

import numpy as np
import pytest
import scalar_points as scalar
import torch
from point_worlds import point_config, point_game

from icrl.contracts import ConfigError
from icrl.point_game.fixed_players import HOSTS
from icrl.point_game.world import opponents_of
from icrl.randomness import stream_seeds

CLOUDS = [{"max_num_points": 5, "max_value": 4}, {"max_num_points": 8, "max_value": 9}]
HOST = ["random", "first", "last@0.5", "order_2013", "tables_3", "table_8@0.25", "order_3210@1"]


def answers(
    name: str, dimension: int = 3, num_streams: int = 4000, subset: int | None = None
) -> dict[tuple[int, ...], list[float]]:
    """How often an agent answers each subset with each coordinate."""
    env = point_game(opponents=[name], dimensions=[dimension])
    state, _ = env.reset(env.all_tasks().expand(num_streams, 3), stream_seeds(4, num_streams))
    found = {}
    for action, members in enumerate(scalar.subsets(dimension)):
        _, after = env.step(state, torch.full((num_streams,), action))
        first = env.spec.points[0] * dimension
        found[members] = after.final_obs[:, first : first + dimension].double().mean(0).tolist()
    return found


@pytest.mark.parametrize("order", ["".join(map(str, order)) for order in itertools.permutations(range(3))])
def test_an_order_chooses_as_it_says(order: str) -> None:
    for members, shares in answers(f"order_{order}", num_streams=20).items():
        first = next(int(coordinate) for coordinate in order if int(coordinate) in members)
        assert shares == [float(coordinate == first) for coordinate in range(3)]


def test_orders_are_all_orders_and_first_and_last_two_of_them() -> None:
    names = [opponent.name for opponent in opponents_of(point_config(opponents=["orders"], dimensions=[4]))]
    assert sorted(names) == sorted("order_" + "".join(map(str, order)) for order in itertools.permutations(range(4)))
    for name, order in (("first", "order_0123"), ("last", "order_3210")):
        assert answers(name, 4, 5) == answers(order, 4, 5)


def test_a_table_answers_a_subset_always_with_the_same_coordinate() -> None:
    seen = set()
    for number in range(12):
        table = answers(f"table_{number}", num_streams=50)
        for members, shares in table.items():
            assert sorted(shares) == [0, 0, 1] and shares.index(1) in members
        seen.add(str(table))
    assert len(seen) > 6
    known = answers("table_5", 4, 10)
    assert {members: [*shares, 0.0] for members, shares in answers("table_5", 3, 10).items()}.items() <= known.items()


def test_answers_of_tables_are_uniform() -> None:
    env = point_game(opponents=["tables_3000"], dimensions=[4])
    for action, members in enumerate(scalar.subsets(4)):
        shares = env._choice[:, action].bincount(minlength=4) / 3000
        for coordinate in range(4):
            assert shares[coordinate] == pytest.approx(1 / len(members) if coordinate in members else 0, abs=0.04)


@pytest.mark.parametrize(
    ("name", "chance"), [("random", 1.0), ("first@1", 1.0), ("last@0.4", 0.4), ("table_2@0.05", 0.05)]
)
def test_an_agent_plays_at_random_as_often_as_it_says(name: str, chance: float) -> None:
    """Uniformly over the legal coordinates then, otherwise as it would without noise."""
    known = answers(name.partition("@")[0], num_streams=1) if name != "random" else None
    for members, shares in answers(name).items():
        for coordinate in range(3):
            expected = chance / len(members) if coordinate in members else 0
            if known:
                expected += (1 - chance) * known[members][coordinate]
            assert shares[coordinate] == pytest.approx(expected, abs=0.025 if expected not in (0, 1) else 0)


@pytest.mark.parametrize(
    ("name", "chance"), [("all_coordinates@0.5", 0.5), ("weak_spivakovsky@0.3", 0.3), ("random_pair@0.2", 0.2)]
)
def test_a_host_plays_at_random_as_often_as_it_says(name: str, chance: float) -> None:
    """Any subset then, otherwise one that it might have named without noise, each as likely as there."""
    number, env = 6000, point_game(role="agent", opponents=[name], dimensions=[3])
    state, _ = env.reset(env.all_tasks().expand(number, 3), stream_seeds(6, number))
    named = state.subset.bincount(minlength=4) / number
    plain = [
        HOSTS[name.partition("@")[0]](state.points, torch.full((number,), noise))
        for noise in (np.arange(60) + 0.5) / 60
    ]
    shares = torch.stack(plain).flatten().bincount(minlength=4) / (60 * number)
    assert torch.allclose(named, chance / 4 + (1 - chance) * shares.float(), atol=0.025)


def test_the_luck_of_an_opponent_changes_from_move_to_move() -> None:
    env = point_game(opponents=["random"], dimensions=[2], max_episode_steps=40)
    state, _ = env.reset(env.all_tasks().expand(400, 3), stream_seeds(8, 400))
    changes, before = [], None
    for _ in range(30):
        state, step = env.step(state, torch.zeros(400, dtype=torch.long))
        answer = step.final_obs[:, -2]
        if before is not None:
            changes.append((answer != before).double().mean().item())
        before = answer
    assert np.mean(changes) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("role", "name"),
    [
        *(
            ("host", name)
            for name in ("zeillinger", "table_-1", "table_x", "table_01", "table_10001", "tables_0", "tables")
        ),
        *(
            ("host", name)
            for name in ("order_01", "order_0112", "order_0123", "ordering", "", "@0.5", "table_²", "table_٣")
        ),
        *(
            ("host", f"first@{chance}")
            for chance in ("", "0", "1.5", "-0.1", "x", "0.20", ".5", "1.", "²", "nan", "1e-1", "0.2@0.3")
        ),
        *(("agent", name) for name in ("first", "table_0", "random", "zeillinger@2", "Zeillinger")),
    ],
)
def test_what_is_no_opponent_is_refused(role: str, name: str) -> None:
    known = "random, first, last, orders, order_01..., tables_100, table_0" if role == "host" else ", ".join(HOSTS)
    good = "first" if role == "host" else "zeillinger"
    with pytest.raises(ConfigError) as refused:
        point_game(role=role, opponents=[good, name])
    said = str(refused.value)
    assert said.startswith(f"env.opponents={[good, name]}: {name} must be one of {known}, with env.role={role}; @0.2 ")


@pytest.mark.parametrize(
    "names", [[], ["first", "first"], ["tables_3", "table_2"], ["orders", "order_201"], ["last@0.5"] * 2]
)
def test_no_opponent_and_one_twice_are_refused(names: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"env\.opponents=.*: must be at least one, and none twice"):
        point_game(opponents=names)


# ---- tasks


def test_every_task_is_there_and_has_a_name() -> None:
    env = point_game(opponents=HOST, dimensions=[4, 2, 3], clouds=CLOUDS)
    tasks, number = env.all_tasks(), len(env.opponents)
    assert number == 9 and (tasks[:, 1] == 4).sum() == number * 2 - 2  # random and order_3210@1 are one
    labels = [env.label(task) for task in tasks]
    assert len(set(labels)) == len(labels) and len(set(env.fingerprint(tasks))) == len(tasks)
    assert all(set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-") for label in labels)
    assert "order_2013-4d-cloud_1" in labels and "last_noise_0.5-2d-cloud_0" in labels
    plain = point_game(opponents=["tables_3", "table_3@0.25"], dimensions=[4])
    assert [plain.label(task) for task in plain.all_tasks()] == ["table_0", "table_1", "table_2", "table_3_noise_0.25"]


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"opponents": ["tables_300"], "dimensions": [2]}, 2),
        ({"opponents": ["tables_1000"], "dimensions": [3]}, 2 * 2 * 2 * 3),
        ({"opponents": ["first", "orders", "last"], "dimensions": [3]}, 6),
        ({"opponents": ["orders"], "dimensions": [3, 2]}, 6 + 2),
        ({"opponents": ["random", "first@1", "first@0.5"], "dimensions": [3]}, 2),
        ({"role": "agent", "opponents": ["random_subset", "zeillinger@1", "random_pair"], "dimensions": [2, 3]}, 1 + 2),
        ({"opponents": ["tables_100"], "dimensions": [4]}, 100),
    ],
)
def test_opponents_that_play_alike_are_one_task(options: dict[str, Any], number: int) -> None:
    """Otherwise a task might be held out that is another's double."""
    env = point_game(**options)
    tasks = env.all_tasks()
    assert len(tasks) == number == len(set(env.fingerprint(tasks)))


def test_a_task_is_the_same_whatever_its_number() -> None:
    """In worlds with more opponents, clouds and dimensions, or another clock; and another where a part of it is."""
    small = point_game(opponents=["table_3", "first"], clouds=CLOUDS[:1], dimensions=[3])
    other = point_game(opponents=["order_012", "tables_5", "table_3@0.5"], clouds=CLOUDS[::-1], dimensions=[3, 2])
    known = set(small.fingerprint(small.all_tasks()))
    tasks = other.all_tasks()
    shared = [
        other.label(task) for task, print_ in zip(tasks, other.fingerprint(tasks), strict=True) if print_ in known
    ]
    assert shared == ["order_012-3d-cloud_1", "table_3-3d-cloud_1"]
    hosts = point_game(role="agent", opponents=["zeillinger"])
    assert not set(hosts.fingerprint(hosts.all_tasks())) & known
