"""The page's own code, run in Node, plays as the library does: rules, context, sampling, references, interventions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_pages import COMMITTED, Small, needs_node, play_in_node, small_model
from installed import needs

from icrl.contracts import Step
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import references_of
from icrl.extensions.demo.checkpoint import file_content
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.randomness import Noise, stream_seeds

pytest.importorskip("onnx")
pytestmark = needs_node
STEPS, GOALS = 120, {"train": [1, 2], "held_out": [4, 20]}
NEAR = 7  # a goal one move from the start, which these models reach often


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Small, Path]:
    """A small model, and its checkpoint for the page."""
    found, folder = small_model(), tmp_path_factory.mktemp("small")
    policy = GPTPolicy(found.model, 1.0, 1.0, 0.75)
    (folder / "checkpoint.js").write_bytes(file_content(found.env, policy, {"name": "small", "step": 1}, GOALS, {}))
    return found, folder / "checkpoint.js"


def play(env: Any, policy: Any, goal: int, noise: torch.Tensor, forced: Sequence[int] = ()) -> dict[str, list[int]]:
    """The same life in the library: time step, cell and action of each step. The first actions are `forced`."""
    state, step = env.reset(torch.tensor([[goal]]), stream_seeds(0, 1))
    carry, found = policy.initial_carry(1), dict[str, list[int]](timesteps=[], cells=[], actions=[])
    for t, number in enumerate(noise):
        found["timesteps"].append(int(step.timestep))
        found["cells"].append(int(step.obs))
        action, carry = policy.act(carry, step, number[None])
        if t < len(forced):
            action = carry.window.action[:, t] = torch.tensor(forced[t : t + 1])
        found["actions"].append(int(action))
        state, step = env.step(state, action)
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.0], ids=["drawn", "greedy"])
def test_a_life_in_the_page_equals_that_of_the_library_action_by_action(
    small: tuple[Small, Path], tmp_path: Path, temperature: float
) -> None:
    """Over twelve episodes or more, in which the full context is rebuilt again and again."""
    (model, env), checkpoint = small
    policy = GPTPolicy(model, float(temperature > 0), temperature or 1.0, 0.75)
    noise = Noise(stream_seeds(0, 1)).draw(STEPS)[:, 0]
    expected = play(env, policy, NEAR, noise)
    played = play_in_node(tmp_path, checkpoint, noise.tolist(), STEPS, NEAR, temperature=temperature)
    assert played["cells"] == expected["cells"] and played["actions"] == expected["actions"]
    if temperature:
        assert len(set(expected["actions"])) == 5 and len(played["episodes"]) >= 12
        assert any(episode["success"] for episode in played["episodes"])


class Blanked(GPTPolicy):
    """Policy that reads no reward."""

    def act(self, carry: GPTCarry, step: Step, noise: torch.Tensor) -> tuple[torch.Tensor, GPTCarry]:
        return super().act(carry, step._replace(reward=torch.zeros_like(step.reward)), noise)


def test_blanked_rewards_are_read_as_in_the_ablation(small: tuple[Small, Path], tmp_path: Path) -> None:
    (model, env), checkpoint = small
    noise = Noise(stream_seeds(1, 1)).draw(STEPS)[:, 0]
    expected = play(env, Blanked(model, 1.0, 1.0, 0.75), NEAR, noise)
    played = play_in_node(tmp_path, checkpoint, noise.tolist(), STEPS, NEAR, blankAt=0)
    assert played["actions"] == expected["actions"]
    assert played["actions"] != play(env, GPTPolicy(model, 1.0, 1.0, 0.75), NEAR, noise)["actions"]
    assert not any(step["rewarded"] for step in played["memory"])


def test_a_moved_goal_pays_on_its_new_cell_alone(small: tuple[Small, Path], tmp_path: Path) -> None:
    (model, env), checkpoint = small
    noise = Noise(stream_seeds(2, 1)).draw(STEPS)[:, 0]
    played = play_in_node(tmp_path, checkpoint, noise.tolist(), STEPS, 24, moveAt=30, movedGoal=NEAR)
    assert played["actions"][:30] == play(env, GPTPolicy(model, 1.0, 1.0, 0.75), 24, noise[:30])["actions"]
    assert played["episodes"][0]["goal"] == 24
    found = [place for place, step in enumerate(played["memory"]) if step["rewarded"]]
    assert found and {played["memory"][place]["cell"] for place in found} == {NEAR}


def test_a_model_that_forgot_begins_anew_with_the_present_episode(small: tuple[Small, Path], tmp_path: Path) -> None:
    (model, env), checkpoint = small
    policy, noise = GPTPolicy(model, 1.0, 1.0, 0.75), Noise(stream_seeds(1, 1)).draw(STEPS)[:, 0]
    begun = [t for t, timestep in enumerate(play(env, policy, NEAR, noise)["timesteps"]) if timestep == 0][5]
    played = play_in_node(tmp_path, checkpoint, noise.tolist(), STEPS, NEAR, forgetAt=begun + 2)["actions"]
    assert played[begun:] == play(env, policy, NEAR, noise[begun:], forced=played[begun : begun + 2])["actions"]
    assert played[begun:] != play(env, policy, NEAR, noise)["actions"][begun:]


@needs("searchers")
def test_the_covering_plan_beside_the_model_is_that_of_the_library(small: tuple[Small, Path], tmp_path: Path) -> None:
    (_, env), checkpoint = small
    noise = Noise(stream_seeds(3, 1)).draw(STEPS)[:, 0].tolist()
    for goal in (0, 24):
        played = play_in_node(tmp_path, checkpoint, noise, STEPS, goal)
        plan = [episode["plan"]["stepsToGoal"] for episode in played["episodes"]]
        expected, _ = play_episodes(references_of(env)["covering plan"], env, torch.tensor([[goal]]), 1, len(plan), 0)
        assert plan == expected.steps_to_goal[0, 0].tolist()


def test_the_committed_model_finds_a_held_out_goal_and_then_goes_straight(tmp_path: Path) -> None:
    """Held out is the cell in row 9, column 3, six moves from the start. The past of a life with another goal, which is
    swapped in then, misleads it."""
    noise = Noise(stream_seeds(0, 1)).draw(2000)[:, 0].tolist()
    played = play_in_node(tmp_path, COMMITTED, noise, 200, 74, temperature=0.3, swapAt=150, movedGoal=17)
    steps = [episode["stepsToGoal"] for episode in played["episodes"]]
    assert steps[0] == 20 and steps[8:12] == [6, 6, 6, 6] and max(steps[-3:]) == 20
