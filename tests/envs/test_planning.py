"""Plans against a recursion over every action of a handful of places."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.envs.core import Outcomes
from icrl.envs.exact import best_actions

PLACES, ACTIONS = 3, 2
VALUES = [0.0, 1.0, -2.5]

Choices = dict[tuple[int, int], list[tuple[float, int, int, bool]]]


@st.composite
def rules(draw: st.DrawFn) -> Choices:
    """For every place and action two outcomes: probability, next place, reward, whether it ends."""

    def outcomes() -> list[tuple[float, int, int, bool]]:
        chance = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
        return [
            (part, draw(st.integers(0, PLACES - 1)), draw(st.integers(0, len(VALUES) - 1)), draw(st.booleans()))
            for part in (chance, 1 - chance)
        ]

    return {(place, action): outcomes() for place in range(PLACES) for action in range(ACTIONS)}


def worth(choices: Choices, place: int, action: int, left: int) -> tuple[float, float]:
    """Return and length of the rest of an episode that starts with `action`."""
    total, length = 0.0, 1.0
    for chance, after, reward, ends in choices[place, action]:
        more, longer = (0.0, 0.0) if ends else best_of(choices, after, left - 1)
        total += chance * (VALUES[reward] + more)
        length += chance * longer
    return total, length


def best_of(choices: Choices, place: int, left: int) -> tuple[float, float]:
    if left == 0:
        return 0.0, 0.0
    options = [worth(choices, place, action, left) for action in range(ACTIONS)]
    most = max(total for total, _ in options)
    return most, min(length for total, length in options if total > most - 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(rules(), min_size=1, max_size=2), st.integers(1, 4))
def test_plans_have_the_most_return_and_then_the_fewest_steps(tasks: list[Choices], num_steps: int) -> None:
    cells = [[[choices[s, a] for a in range(ACTIONS)] for s in range(PLACES)] for choices in tasks]
    columns = [torch.tensor([[[[o[i] for o in a] for a in s] for s in n] for n in cells]) for i in range(4)]
    best = best_actions(Outcomes(*columns), torch.tensor(VALUES, dtype=torch.float64), num_steps)
    assert best.shape == (len(tasks), num_steps, PLACES)
    for n, choices in enumerate(tasks):
        for t in range(num_steps):
            for place in range(PLACES):
                left = num_steps - t
                found = worth(choices, place, int(best[n, t, place]), left)
                wanted = best_of(choices, place, left)
                assert abs(found[0] - wanted[0]) < 1e-6 and abs(found[1] - wanted[1]) < 1e-6
