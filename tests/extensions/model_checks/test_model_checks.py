"""Two checks of a model: its own noise in the context, and actions that do something else."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete
from harness import done
from matplotlib import pyplot as plt
from models import outspoken

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.policies import Planner
from icrl.envs.rollout import rollout, start_streams
from icrl.evaluation.in_context import Adaptation, play_episodes
from icrl.extensions.model_checks.disturbed import Noisy, OtherActions
from icrl.extensions.model_checks.programs.check_model import checks, checks_table, noise_name
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise, stream_seeds
from icrl.runs.files import read_json

CONFIG = load_config(
    ["env=tiny_room", "model.context_len=40", "model.embed_dim=8", "model.num_layers=1", "num_threads=1"]
)
ENV = make_env(CONFIG.env)
SEEDS = stream_seeds(0, 60)
TASKS = ENV.all_tasks()[torch.arange(60) % len(ENV.all_tasks())]


def policy() -> GPTPolicy:
    torch.manual_seed(0)
    return GPTPolicy(outspoken(GPT(CONFIG.model, ENV.spec)), 1.0, 1.0, 0.5)


def lives(player, env=ENV, num_steps=40):
    played, streams = rollout(player, env, start_streams(player, env, TASKS, SEEDS), num_steps, Noise(SEEDS))
    return played, streams


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_actions_is_random_in_the_first_episodes_and_read_as_its_own(share) -> None:
    """An undisturbed model that is shown the same lives has the same context, and plays on in the same way."""
    plain, played = policy(), lives(Noisy(policy(), share, 2))[0]
    begun = (played.timestep == 0).cumsum(0)
    carry, same = plain.initial_carry(60), []
    for time, noise in enumerate(Noise(SEEDS).draw(40)):
        reward = played.reward[time - 1] if time else torch.zeros(60)
        first = start_streams(plain, ENV, TASKS, SEEDS).step
        step = first._replace(obs=played.obs[time], reward=reward, timestep=played.timestep[time])
        action, carry = plain.act(carry, step, noise)
        same.append(action == played.action[time])
        carry = plain.replace_action(carry, played.action[time])
    kept = torch.stack(same)
    assert kept[begun > 2].all()
    changed = 1 - kept[begun <= 2].float().mean()
    assert (changed == 0) if share == 0 else 0.5 * share < changed < share


def test_only_the_meaning_of_the_actions_is_another_one() -> None:
    """Each stream keeps one that is never the known one, and the best action is named in the new meaning."""
    world = OtherActions(ENV)
    (state, shift), _ = world.reset(TASKS, SEEDS)
    assert {*shift.tolist()} == {1, 2, 3, 4}
    for action in range(5):
        done_here = torch.full((60,), action)
        (_, kept), found = world.step((state, shift), done_here)
        _, expected = ENV.step(state, (done_here + shift) % 5)
        assert torch.equal(kept, shift)
        assert torch.equal(found.obs, expected.obs) and torch.equal(found.reward, expected.reward)
    played, _ = play_episodes(Planner(), world, ENV.all_tasks(), 5, 3, 0)
    assert played.success.all()


def test_the_numbers_of_other_spaces_are_mirrored() -> None:
    space = Box(-1.0, 3.0, (2,), np.float32)
    spec = ENV.spec._replace(action_space=space)
    world = OtherActions(SimpleNamespace(spec=spec))
    assert torch.equal(world._meaning(torch.tensor([[-1.0, 0.5]]), torch.ones(1)), torch.tensor([[3.0, 1.5]]))
    world.spec = spec._replace(action_space=MultiDiscrete([3, 5]))
    assert world._meaning(torch.tensor([[0, 1]]), torch.ones(1)).tolist() == [[2, 3]]


def shown(mean: float, low: float, high: float) -> dict:
    return {"mean": mean, "low": low, "high": high}


def test_a_model_is_harmed_where_it_is_surely_worse_than_with_an_empty_context_or_than_random_play() -> None:
    found = {
        "measure": "success",
        "half": 2,
        "late": {"undisturbed": shown(0.9, 0.8, 1), "a": shown(0.4, 0.3, 0.5), "b": shown(0.7, 0.6, 0.8)},
        "late less undisturbed": {"a": shown(-0.5, -0.6, -0.4), "b": shown(-0.2, -0.3, -0.1)},
        "late less empty context": {"a": shown(-0.2, -0.3, -0.1), "b": shown(0.1, -0.1, 0.2)},
    }
    found["late"]["c"], found["late less random play"] = shown(0.1, 0, 0.2), {"c": shown(0.0, -0.1, 0.1)}
    lines = checks_table(found).splitlines()
    assert [line.rpartition("  ")[2] for line in lines[3:]] == ["harmed", "worse than undisturbed", "no harm"]


def test_two_tasks_are_too_few_to_tell_of_harm() -> None:
    """Of 2 of 2 tasks the exact interval is 0.158 to 1, of 0 of 2 it is 0 to 0.842."""
    always, never = (Adaptation(*np.full((4, 2, 1, 4), each)) for each in (1.0, 0.0))
    setup = SimpleNamespace(config=load_config(["env=tiny_room", "evaluation.num_episodes=4"]))
    found = checks(setup, {noise_name(0.0): always, noise_name(1.0): never})  # pyrefly: ignore
    late, less = found["late"], found["late less empty context"][noise_name(1.0)]
    assert late[noise_name(0.0)] == pytest.approx(shown(1, 0.158, 1), abs=1e-3)
    assert late[noise_name(1.0)] == pytest.approx(shown(0, 0, 0.842), abs=1e-3)
    assert less == pytest.approx(shown(-1, -1, 0.684), abs=1e-3)


def test_a_trained_model_is_checked(root: Path) -> None:
    told, folder = done("check_model", root), root / "logs/tiny/evaluation"
    found = read_json(folder / "checks.json")
    names = ["random actions 0%", "random actions 25%", "random actions 50%", "random actions 100%"]
    assert [*found["curves"]] == [*names, "other actions", "other actions, random play"]
    assert all(name in told for name in found["late"])
    late = np.array(found["curves"]["random actions 100%"]["mean"])[found["half"] :].mean()
    undisturbed = np.array(found["curves"]["random actions 0%"]["mean"])
    assert found["late"]["random actions 100%"]["mean"] == pytest.approx(late)
    assert (len(undisturbed), found["half"]) == (3, 1)
    for other, half in (("undisturbed", slice(1, 3)), ("empty context", slice(2))):  # as many episodes
        difference = found[f"late less {other}"]["random actions 100%"]["mean"]
        assert difference == pytest.approx(late - undisturbed[half].mean())
    assert plt.imread(folder / "checks.png").shape[:2] == (175, 300)  # a quarter, see `blank`
