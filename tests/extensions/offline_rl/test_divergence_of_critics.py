"""Critics whose values diverge: what is refused, and what is said."""

import math
from pathlib import Path
from typing import Any

import critics
import pytest
from toy import CPU, curves, look, steps_of

from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.runs.distributed import Ranks
from icrl.runs.divergence import DivergedError
from icrl.training.fit import fit
from icrl.training.program import RunContext


def fit_critic(folder: Path, bound: float = math.inf, lowered: str = "", **critic: Any) -> None:
    """Four updates of a small critic."""
    config = critics.config_of(critic=critic, trainer={"num_iterations": 4}, summaries={"summary_interval": 1})
    model = critics.fresh_critic(config)
    objective = ImplicitQLearning(model, bound)
    batches = lambda update: critics.batch_of(4, seed=update)  # noqa: E731
    context = RunContext(config, folder, CPU, Ranks(), {"program": "train_ilql", "run": "f00d"}, [])
    fit(context, model, objective, batches, look, after_step=model.after_update, lowered=lowered)


def test_terms_that_overflow_are_named_with_what_to_lower(tmp_path):
    expected = r"train_ilql, in update 1: loss, q1, q2, gradient_norm not finite.* lower critic\.reward_scale, "
    with pytest.raises(DivergedError, match=expected):
        fit_critic(tmp_path, lowered="critic.reward_scale, ", reward_scale=1e30)
    assert not steps_of(tmp_path)


@pytest.mark.parametrize(("bound", "warnings"), [(1e-3, 1), (1e3, 0), (math.inf, 0)])
def test_values_over_their_bound_are_warned_of_once(tmp_path, capsys, bound, warnings):
    fit_critic(tmp_path, bound)
    over = [float(value) > 1 for _, value in curves(tmp_path)["train/q_over_bound"]]
    assert over == [bool(warnings)] * 4
    told = [line for line in capsys.readouterr().out.splitlines() if "largest |Q|" in line]
    assert len(told) == warnings and all(line.startswith("update 1: ") for line in told)
