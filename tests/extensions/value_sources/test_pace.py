"""Amount of work against exact fractions and against counting iteration by iteration."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probes import changed

from icrl.app.compose import load_config
from icrl.sources.options import clock_of, env_steps, first_update, num_iterations, unrolled

pytestmark = pytest.mark.quick
SOURCE: Any = load_config(["source=q_learning"]).source
UP_TO_500 = st.integers(0, 500)


@given(st.integers(100, 2000), st.integers(1, 7), st.integers(1, 500), UP_TO_500, st.integers(0, 60), UP_TO_500)
def test_amount_of_work(hundredths: int, num_envs: int, steps: int, initial: int, before: int, some: int) -> None:
    """A fraction of a step is carried over: never a whole step behind, exact after a whole number of steps. Iterations
    are the fewest that make the env steps; the first update is after the first collected steps. A pretraining plays
    nothing, and moves all that follows by its iterations."""
    amounts = {"num_envs": num_envs, "num_env_steps": steps, "initial_collect_steps": initial}
    source, length = changed(SOURCE, unroll_length=hundredths / 100, **amounts), Fraction(hundredths, 100)
    assert 0 <= some * length - unrolled(source, some) < 1
    assert abs(unrolled(source, some + 1) - unrolled(source, some) - length) < 1
    assert unrolled(source, 100 * some) == hundredths * some
    iterations = num_iterations(source)
    assert unrolled(source, iterations) * num_envs >= steps > unrolled(source, iterations - 1) * num_envs
    assert num_iterations(changed(source, num_iterations=17)) == 17
    collected = next(i for i in range(1, 999) if unrolled(source, i) * num_envs >= initial)
    assert first_update(source) == collected
    later = changed(source, rl_train_after_update_steps=before)
    assert (num_iterations(later), env_steps(later)) == (iterations + before, env_steps(source))
    assert first_update(later) == collected + before
    assert unrolled(later, before) == unrolled(later, before // 2) == 0
    assert all(unrolled(later, before + i) == unrolled(source, i) for i in range(9))


def test_updates_by_hand() -> None:
    """10 unrolls of 1.5 steps of 2 environments; after them 1, 3, 4, 6, 7, 9, 10, 10, 10, 10 of 10 steps are kept."""
    changes = {"num_env_steps": 0, "num_iterations": 10, "clear_replay_buffer": False, "replay_buffer_length": 10}
    changes |= {"num_envs": 2, "unroll_length": 1.5, "mini_batch_length": 4, "mini_batch_size": 2}
    swept = changed(SOURCE, **changes)
    drawn = changed(swept, whole_replay_buffer_training=False, num_updates_per_train_iter=3)
    for source, expected in (
        (swept, [0, 0, 1, 1, 1, 2, 2, 2, 2, 2]),
        (changed(swept, mini_batch_size=0), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        (changed(swept, mini_batch_size=9), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        (drawn, [0, 0, 3, 3, 3, 3, 3, 3, 3, 3]),
        (changed(drawn, initial_collect_steps=11), [0, 0, 0, 3, 3, 3, 3, 3, 3, 3]),
        (changed(drawn, offline_buffer_dir=["others"]), [3] * 10),
        (changed(swept, rl_train_after_update_steps=3, offline_buffer_dir=["others"]), [1] * 8 + [2] * 2),
    ):
        updates = [clock_of(source, iteration).updates for iteration in range(11)]
        assert [later - earlier for earlier, later in pairwise(updates)] == expected


def test_a_billion_iterations_are_not_counted_in_advance() -> None:
    source = changed(SOURCE, num_envs=2, unroll_length=1, num_env_steps=0, num_iterations=10**9)
    assert clock_of(source, 0).updates == 0
    later = clock_of(source, 7)
    assert later == (7 / 10**9, 7, 14, clock_of(changed(source, num_iterations=7), 7).updates)
