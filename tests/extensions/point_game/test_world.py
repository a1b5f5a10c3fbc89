"""Point game as a family of tasks, against one stream at a time in plain Python."""

import pytest
import torch
from point_worlds import legal_in, lived, point_game
from refusals import check_refusal
from scalar_family import Stream

from icrl.evaluation.references import references_of
from icrl.extensions.point_game.fixed_players import AGENTS as FIXED_AGENTS
from icrl.extensions.point_game.fixed_players import HOSTS
from icrl.extensions.point_game.rules import canonical
from icrl.randomness import stream_seeds

AGENTS = ["random", "first", "last", "order_2013", "tables_3", "table_8"]
WORLDS = {"host": {"opponents": AGENTS}, "agent": {"role": "agent", "opponents": [*HOSTS]}}


@pytest.mark.parametrize("role", WORLDS)
def test_every_step_equals_plain_python(role: str) -> None:
    """All opponents in one batch, or a few; Python plays each stream alone. A step does not change the state before
    it."""
    env = point_game(**WORLDS[role])
    tasks = env.all_tasks().repeat(3, 1)
    tasks = tasks[torch.randperm(len(tasks), generator=torch.Generator().manual_seed(1))]
    seeds = stream_seeds(3, len(tasks))
    rows = lived(env, tasks, seeds, 16)
    streams = [
        Stream(role, env.opponents[who], 10, seed, env.spec.points, 6)
        for (who,), seed in zip(tasks.tolist(), seeds.tolist(), strict=True)
    ]
    assert rows[0][2].obs.tolist() == [stream.obs for stream in streams]
    sizes = {"host": (10 * 4 * 2**6 + 2, 11, "end"), "agent": (10 * 4 * 2**6 + 2, 4, "survival")}[role]
    assert (env.spec.num_obs, env.spec.num_actions, env.spec.success) == sizes
    ends = set()
    for state, action, step in rows[1:]:
        columns = [column.tolist() for column in step[:-1]]
        for stream, move, *shown in zip(streams, action.tolist(), *columns, strict=True):
            assert shown == [*stream.step(move)]
            ends.add((shown[2], shown[3]))
        assert (step.optimal_action == env.spec.num_actions).all()
        assert torch.equal(env.points_of(step.obs), canonical(state.points))
    assert len(ends) == 4  # a game may also end with the last move of the clock
    for some in (torch.tensor([len(tasks) - 1, 3, 8]), torch.tensor([0])):
        for row, few in zip(rows, lived(point_game(**WORLDS[role]), tasks[some], seeds[some], 12), strict=False):
            assert all(torch.equal(ours[some], yours) for ours, yours in zip(row[2], few[2], strict=True))


def test_illegal_actions_are_refused() -> None:
    env = point_game(role="agent", opponents=["random_pair"])
    state, step = env.reset(env.all_tasks().expand(3, 1), stream_seeds(0, 3))
    legal = legal_in(env, step.obs)
    action = legal.long().argmax(1)
    env.step(state, action)
    action[1] = int((~legal[1]).nonzero()[0])
    with pytest.raises(ValueError, match="an action is not legal"):
        env.step(state, action)


UNKNOWN = {
    "host": ["zeillinger", "table_01", "table_10001", "tables_0", "order_0112", "first@0.5"],
    "agent": ["first", "Zeillinger"],
}


@pytest.mark.parametrize("role", UNKNOWN)
def test_unknown_opponents_none_and_one_twice_are_refused(role: str) -> None:
    known = "random, first, last, orders, order_01..., tables_100, table_0" if role == "host" else ", ".join(HOSTS)
    good = "first" if role == "host" else "zeillinger"
    for name in UNKNOWN[role]:
        given = [good, name]
        check_refusal(lambda names: point_game(role=role, opponents=names), given, (f"env.opponents={given}", known))
    for wrong in ([], [good, good], *([["tables_3", "table_2"], ["orders", "order_2013"]] if role == "host" else [])):
        check_refusal(lambda names: point_game(role=role, opponents=names), wrong, ("env.opponents=", "no duplicates"))


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (WORLDS["host"], 8),
        ({"opponents": ["first", "orders", "last"]}, 24),
        ({"role": "agent", "opponents": ["random_subset", "zeillinger", "random_pair"]}, 3),
    ],
)
def test_opponents_that_play_alike_are_one_task(options, number: int) -> None:
    """Otherwise a task might be held out that equals a training task."""
    env = point_game(**options)
    tasks = env.all_tasks()
    labels = [env.label(task) for task in tasks]
    assert len(tasks) == number == len(set(env.fingerprint(tasks))) == len(set(labels))
    assert all(set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-") for label in labels)


def test_labels_and_fingerprints_do_not_depend_on_the_number_of_a_task() -> None:
    """They are the same in worlds with more opponents."""
    small = point_game(opponents=["table_3", "first"])
    other = point_game(opponents=["order_0123", "tables_5"])
    known, tasks = set(small.fingerprint(small.all_tasks())), other.all_tasks()
    prints = zip(tasks, other.fingerprint(tasks), strict=True)
    shared = [other.label(task) for task, fingerprint in prints if fingerprint in known]
    assert shared == ["order_0123", "table_3"]


@pytest.mark.parametrize(("role", "best"), [("host", ["Zeillinger", "Weak Spivakovsky"]), ("agent", ["First", "Last"])])
def test_fixed_players_are_references_beside_random_play(role: str, best: list[str]) -> None:
    opponents = ["tables_3", "random"] if role == "host" else ["zeillinger", "random_subset"]
    env = point_game(role=role, opponents=opponents, max_episode_steps=20)
    references = references_of(env)
    assert list(references) == ["random", *best]
    tasks = env.all_tasks().repeat(10, 1)
    _, step = env.reset(tasks, stream_seeds(0, len(tasks)))
    points, legal, noise = env.points_of(step.obs), legal_in(env, step.obs), torch.linspace(0, 0.99, len(tasks))
    for name in best:
        player = name.lower().replace(" ", "_")
        action, _ = references[name].act(references[name].initial_carry(len(tasks)), step, noise)
        by_rule = HOSTS[player](points, noise) if role == "host" else FIXED_AGENTS[player](points, legal, noise)
        assert torch.equal(action, by_rule)
