import numpy as np
import pytest
import torch

from src.config import load_config
from src.contracts import EnvSpec
from src.envs.exact import Expectation
from src.evaluation.in_context import Adaptation
from src.evaluation.report import constant_curves, curves_of, final_of, solved, source_label, table, tail_of

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def adaptation() -> Adaptation:
    """Two tasks, three streams, eight episodes: task 0 is solved from episode 4 on, task 1 never."""
    success = np.zeros((2, 3, 8))
    success[0, :, 3:] = 1
    return Adaptation(success * 5, success, np.where(success > 0, 4, 20), np.full_like(success, 20))


@pytest.mark.parametrize(
    ("name", "label"), [("a2c", "A2C"), ("q_learning", "Q-learning"), ("noisy_expert", "noisy expert")]
)
def test_sources_are_called_as_people_do(name: str, label: str) -> None:
    assert source_label(name) == label


def test_curves_are_means_with_intervals_around_them():
    curves = curves_of(adaptation(), OPTIONS, seed=0)
    assert curves["success"]["mean"] == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert curves["returns"]["mean"][-1] == 2.5
    assert curves["steps_to_goal"]["mean"] == [20, 20, 20, 12, 12, 12, 12, 12]
    for curve in curves.values():
        for low, mean, high in zip(curve["low"], curve["mean"], curve["high"], strict=True):
            assert low <= mean <= high
    assert (curves["success"]["low"][-1], curves["success"]["high"][-1]) == (0, 1)  # two tasks: anything may be


def test_the_final_result_is_the_last_quarter():
    final = final_of(adaptation(), OPTIONS, seed=0)
    assert tail_of(8) == 2
    assert final["success"]["mean"] == 0.5
    assert final["success_per_task"] == [1.0, 0.0]
    assert final["fraction_solved"] == 0.5
    assert final["steps_to_goal"]["mean"] == 12
    assert final["returns"]["interquartile_mean"] == pytest.approx(2.5)


def test_the_table_has_a_row_per_policy_and_the_right_episodes():
    random = Expectation(torch.tensor([0.2, 0.4]), torch.tensor([0.1, 0.3]), torch.tensor([18.0, 16.0]))
    text = table({"model": curves_of(adaptation(), OPTIONS, seed=0), "random": constant_curves(random, 8)})
    header, _, model, chance = text.splitlines()
    assert header.split() == [
        *["success", "at", "episode", "1", "5", "7-8"],
        *["steps", "to", "goal", "7-8"],
        *["return", "7-8"],
    ]
    assert model.split() == ["model", "0.000", "0.500", "0.500", "12.00", "2.50"]
    assert chance.split() == ["random", "0.200", "0.200", "0.200", "17.00", "0.30"]


OPTIMUM = np.array([6.0, 1.0])  # of the two tasks; a success pays 5


def test_regret_is_what_was_missed_so_far() -> None:
    """The first task misses 6 in each of three episodes and 1 in each of five, the second 1 in each of eight."""
    curves = curves_of(adaptation(), OPTIONS, seed=0, optimum=OPTIMUM)
    assert curves["regret"]["mean"] == [
        (a + b) / 2 for a, b in zip([6, 12, 18, 19, 20, 21, 22, 23], range(1, 9), strict=True)
    ]
    final = final_of(adaptation(), OPTIONS, seed=0, optimum=OPTIMUM)
    assert final["regret"]["mean"] == (23 + 8) / 2
    assert final["regret_per_task"] == [23, 8]
    assert "regret" not in final_of(adaptation(), OPTIONS, seed=0)
    assert "regret" not in curves_of(adaptation(), OPTIONS, seed=0)


def test_regret_of_chance_grows_evenly_and_that_of_the_optimum_not() -> None:
    random = Expectation(torch.tensor([1.0, 0.5]).double(), torch.ones(2), torch.ones(2))
    assert constant_curves(random, 3, OPTIMUM)["regret"]["mean"] == [2.75, 5.5, 8.25]
    best = random._replace(episode_return=torch.from_numpy(OPTIMUM))
    assert constant_curves(best, 3, OPTIMUM)["regret"]["mean"] == [0, 0, 0]
    assert "regret" not in constant_curves(random, 3)


def test_the_table_shows_regret_where_there_is_one() -> None:
    random = Expectation(torch.tensor([1.0, 0.5]).double(), torch.ones(2), torch.ones(2))
    text = table(
        {
            "model": curves_of(adaptation(), OPTIONS, seed=0, optimum=OPTIMUM),
            "random": constant_curves(random, 8, OPTIMUM),
        }
    )
    header, rule, model, chance = text.splitlines()
    assert header.endswith("regret 1-8") and len(rule) == len(header) == len(model) == len(chance)
    assert model.split()[-1] == "15.50"
    assert chance.split()[-1] == "22.00"


def test_how_a_solved_task_is_called() -> None:
    spec = EnvSpec(1, 2, (0.0, 1.0), 0, 1)
    assert solved(spec) == "solved"
    assert solved(spec._replace(success="best_action")) == "whose best arm was found"
