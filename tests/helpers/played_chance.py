"""Random play against its exact expectation."""

from torch import Tensor

from icrl.envs.core import TensorEnv
from icrl.envs.exact import Chance
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import exact_references


def check_chance(env: TensorEnv, tasks: Tensor, num_streams: int) -> None:
    """Returns, successes and steps agree within five standard errors, and the optimum is better than chance."""
    exact = exact_references(env, tasks)
    assert list(exact) == ["random", "optimum"]
    found, _ = play_episodes(Chance(env.spec), env, tasks, num_streams, 5, seed=0)
    fields = {"returns": "episode_return", "success": "success", "steps_to_goal": "steps_to_goal"}
    for measure, field in fields.items():
        values, expected = getattr(found, measure), getattr(exact["random"], field).numpy()
        error = 5 * values.std((1, 2)) / (5 * num_streams) ** 0.5 + 1e-9
        assert (abs(values.mean((1, 2)) - expected) < error).all()
    assert (exact["optimum"].episode_return > exact["random"].episode_return).all()
