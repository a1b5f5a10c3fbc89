"""Walkers that remember the goal, against scalar Python and the numbers that are known of them."""

import pytest
import torch

from icrl.config.env_schema import DarkRoomConfig
from icrl.contracts import Policy
from icrl.envs.dark_room import DarkRoom
from icrl.envs.rooms import next_cells
from icrl.evaluation.in_context import play_episodes
from icrl.sources.explorers import Found, PersistentWalk, UniformWalk


def room(size: int, num_steps: int, terminate: bool) -> DarkRoom:
    return DarkRoom(DarkRoomConfig("dark_room", "test", num_steps, size, False, terminate, False))


@pytest.mark.parametrize("terminate", [True, False])
@pytest.mark.parametrize("walk", [UniformWalk, PersistentWalk])
def test_once_the_goal_was_found_they_go_straight_there(
    walk: type[UniformWalk | PersistentWalk], terminate: bool
) -> None:
    env = room(5, 10, terminate)
    tasks = env.all_tasks()
    found, played = play_episodes(walk(env), env, tasks, 20, 12, seed=0)
    goals, after = tasks[:, 0].repeat_interleave(20), next_cells(5).view(-1, 5)

    def away(cells: torch.Tensor) -> torch.Tensor:
        return (cells // 5 - goals // 5).abs() + (cells % 5 - goals % 5).abs()

    knows = torch.zeros(len(goals), dtype=torch.bool)
    for obs, action, reward in zip(played.obs, played.action, played.reward, strict=True):
        before, landed = away(obs), away(after[obs, action])
        assert torch.equal(landed[knows], (before[knows] - 1).clamp(min=0))
        knows = knows | (reward > 0)
    assert found.success[..., 0].mean() < 0.5 < found.success[..., -1].mean()


def before_the_goal(policy: Policy[Found] | Policy[tuple[Found, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions and time steps `[T, B]` in a room without a goal."""
    env = room(4, 8, terminate=True)
    _, played = play_episodes(policy, env, torch.tensor([[16]]), 3000, 2, seed=1)
    return played.action, played.timestep


def test_a_uniform_walk_takes_each_action_equally_often() -> None:
    action, _ = before_the_goal(UniformWalk(room(4, 8, terminate=True)))
    shares = action.flatten().bincount(minlength=5) / action.numel()
    assert torch.allclose(shares, torch.full((5,), 0.2), atol=0.005)


def test_a_persistent_walk_keeps_its_direction() -> None:
    """With probability 1/2 + 1/2 * 1/4, at walls too; it never stays; episodes begin anew."""
    action, timestep = before_the_goal(PersistentWalk(room(4, 8, terminate=True)))
    assert action.min() == 1
    same, begins = action[1:] == action[:-1], timestep[1:] == 0
    assert same[~begins].double().mean().item() == pytest.approx(0.625, abs=0.005)
    assert same[begins].double().mean().item() == pytest.approx(0.25, abs=0.02)
    others = torch.stack([action[1:], action[:-1]], dim=-1)[~begins & ~same]
    turned = (others[:, 0] - others[:, 1]) % 4
    assert torch.allclose(turned.bincount(minlength=4)[1:] / len(turned), torch.full((3,), 1 / 3), atol=0.01)


def test_known_numbers_of_the_default_split() -> None:
    """Held-out goals of the default room: success in episodes 5, 10 and 31 to 40, and steps at the end."""
    env = room(9, 20, terminate=True)
    held_out = torch.randperm(80, generator=torch.Generator().manual_seed(0))[57:]
    found, _ = play_episodes(PersistentWalk(env), env, env.all_tasks()[held_out], 60, 40, seed=0)
    success = found.success.mean((0, 1))
    assert success[4] == pytest.approx(0.53, abs=0.04) and success[9] == pytest.approx(0.76, abs=0.04)
    assert success[30:].mean() == pytest.approx(0.987, abs=0.01)
    assert found.steps_to_goal[..., 30:].mean() == pytest.approx(4.71, abs=0.08)
