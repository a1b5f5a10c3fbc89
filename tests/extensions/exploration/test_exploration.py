"""Exploration without a goal: coverage and the search off a plan, against walks by hand and a scalar replay."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from icrl.app.compose import load_config
from icrl.contracts import Step
from icrl.envs.rooms import NUM_ACTIONS, DarkRoom, next_cells
from icrl.evaluation.in_context import play_steps
from icrl.evaluation.references import references_of
from icrl.evaluation.trained import policy_of
from icrl.extensions.exploration import exploration
from icrl.extensions.exploration.exploration import NUM_OFF_PLAN, OffPlan, episodes_of, explored_by
from icrl.extensions.probes.probes import Wiped
from icrl.extensions.searchers.explorers import Explorer, Memory
from icrl.nn.gpt import GPT, context_of
from icrl.plots import figures
from icrl.plots.figures import adaptation_figure


@pytest.mark.parametrize("terminate", [True, False])
def test_coverage_by_hand(terminate: bool) -> None:
    """From the centre: up and right; left and stay; and so on again. The other stream never leaves the centre."""
    options = ["env.size=3", "env.max_episode_steps=2", f"env.terminate_on_goal={str(terminate).lower()}"]
    env = DarkRoom(load_config(options).env)
    actions = torch.tensor([[1, 2, 4, 0], [0, 0, 0, 0]])
    walk = Mock(initial_carry=lambda _: 0, act=lambda taken, step, noise: (actions[:, taken % 4], taken + 1))
    found = explored_by(walk, env, 2, seed=0)["coverage"]
    assert found.shape == (1, 2, episodes_of(env))
    assert found[0, 0].tolist() == pytest.approx([2 / 8, 3 / 8, 3 / 8, 3 / 8, 3 / 8, 3 / 8])
    assert found[0, 1].tolist() == [0] * episodes_of(env)  # the start is no goal
    larger = DarkRoom(load_config(["env.size=13"]).env)
    assert episodes_of(larger) == 9 + 2, "168 cells with 20 steps an episode, and two more"


# ---- off plan

SMALL = ("model.embed_dim=8", "model.num_layers=1", "model.num_heads=1", "model.ff_dim=8", "model.context_len=40")


class Recorded:
    """Policy that keeps the noise and the actions of all steps."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.initial_carry = policy, policy.initial_carry
        self.noise, self.actions = list[torch.Tensor](), list[torch.Tensor]()

    def act(self, carry: Any, step: Step, noise: torch.Tensor) -> tuple[torch.Tensor, Any]:
        action, carry = self.policy.act(carry, step, noise)
        self.noise.append(noise)
        self.actions.append(action.clone())
        return action, carry


class ByEpisode(Explorer):
    """Goes up, right, down or left through its whole n-th episode: a plan that never looks back."""

    def explore(self, memory: Memory, step: Step, noise: torch.Tensor) -> torch.Tensor:
        return 1 + memory.episode % 4


def players(env: DarkRoom, config: Any) -> dict[str, Any]:
    model = policy_of(config, GPT(config.model, env.spec))
    return {"by episode": ByEpisode(env), "model": model, **references_of(env)}


@pytest.mark.parametrize("name", ["by episode", "model", "searcher", "turning walk with goal memory"])
def test_the_search_off_a_plan_by_walking_cell_by_cell(name: str) -> None:
    """The random actions are those of the noise alone; what comes after them is what the policy does with this past in
    its carry; the replay is what it did in the undisturbed stream."""
    config = load_config(["env.size=5", "env.max_episode_steps=6", *SMALL])
    env, num_streams, steps = DarkRoom(config.env), 7, 6
    policy = players(env, config)[name]
    found = explored_by(policy, env, num_streams, seed=3)
    nowhere, after = env.unsolvable(torch.tensor([[0]])), next_cells(5).view(25, NUM_ACTIONS)
    plain, off = Recorded(policy), Recorded(OffPlan(policy, steps, NUM_ACTIONS))
    for player in (plain, off):
        play_steps(player, env, nowhere, num_streams, NUM_OFF_PLAN * steps, seed=3)
    expected = {"off_plan": np.zeros((num_streams, 3)), "blind_replay": np.zeros((num_streams, 3))}
    for kind, player in (("off_plan", off), ("blind_replay", plain)):
        for stream in range(num_streams):
            seen, new = set[int](), set[int]()
            for episode in range(NUM_OFF_PLAN):
                cell = 12
                for t in range(episode * steps, (episode + 1) * steps):
                    drawn = int(float(off.noise[t][stream]) * NUM_ACTIONS)
                    cell = int(after[cell, int(player.actions[t][stream]) if episode else drawn])
                    (new if episode else seen).add(cell)
                if episode:
                    expected[kind][stream, episode - 1] = len(new - seen - {12}) / 24
        np.testing.assert_allclose(found[kind][0], expected[kind])
    if name in ("by episode", "turning walk with goal memory"):  # they do not look at what was seen
        np.testing.assert_array_equal(found["off_plan"], found["blind_replay"])


def test_who_looks_where_it_has_not_been_finds_more_than_a_blind_replay() -> None:
    """The searcher, and not the covering plan, whose paths are set. All policies have the same random episode."""
    config = load_config(["env.size=7"])
    env = DarkRoom(config.env)
    found = {name: explored_by(player, env, 60, seed=0) for name, player in references_of(env).items()}
    gains = {name: (of["off_plan"] - of["blind_replay"])[0, :, -1] for name, of in found.items()}
    error = gains["searcher"].std() / 60**0.5
    assert gains["searcher"].mean() > 5 * error and not gains["covering plan"].any()
    assert set(explored_by(Wiped(policy_of(config, GPT(config.model, env.spec))), env, 2, seed=0)) == {"coverage"}


def test_a_model_reads_the_random_actions_as_its_own() -> None:
    """They are in its window, and its cache gives what one forward over this window gives."""
    config = load_config(["env.size=5", "env.max_episode_steps=6", *SMALL])
    env = DarkRoom(config.env)
    policy = policy_of(config, GPT(config.model, env.spec))
    player, noise = OffPlan(policy, 6, NUM_ACTIONS), torch.rand(20, 3)
    state, step = env.reset(env.unsolvable(torch.zeros(3, 1, dtype=torch.long)), torch.arange(3))
    carry = player.initial_carry(3)
    for t in range(20):
        action, carry = player.act(carry, step, noise[t])
        state, step = env.step(state, action)
    (window, _, seen), _ = carry
    assert torch.equal(window.action[:, :6], (noise[:6].T * NUM_ACTIONS).long()) and seen == 20
    with torch.no_grad():
        whole = policy.model(context_of(window.at(np.s_[:, :20])))[:, 6:]
    again = policy.choose(whole.flatten(0, 1), window.obs[:, 6:20].flatten(), noise[6:].T.flatten())
    assert torch.equal(again.view(3, 14), window.action[:, 6:20])


def test_who_explores_beside_the_model_and_in_how_many_streams() -> None:
    """As many as the probes of all tasks have. One whose context is wiped reads no past."""
    config = load_config(["env.size=4", "env.max_episode_steps=5", "evaluation.num_probe_streams=2", *SMALL])
    env = DarkRoom(config.env)
    model, others = policy_of(config, GPT(config.model, env.spec)), references_of(env)
    setup: Any = SimpleNamespace(config=config, env=env, policy=model, learners=others, main="held_out")
    setup.tasks = {"train": env.all_tasks(), "held_out": env.all_tasks()[:3]}
    found = {name.removeprefix("exploration: "): job() for name, job in exploration.Exploration().jobs(setup)}
    assert found.keys() == {"model, context kept", "model, context wiped at reset", *others, "random"}
    for name, shares in found.items():
        assert shares["coverage"].shape == (1, 2 * 3, 5)
        assert ("off_plan" in shares) == (name not in ("model, context wiped at reset", "random")), name
    del others["covering plan"]
    assert not [*exploration.Exploration().jobs(setup)], "another world"


# ---- numbers and tables

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def explored(*runs: dict[str, Any]) -> dict[str, Any]:
    """Numbers of runs with these coverages by policy."""
    return exploration.exploration_numbers([{"coverage": run} for run in runs], OPTIONS, 0)


def test_coverage_of_several_runs() -> None:
    one = {"plan": np.full((1, 4, 2), 0.5), "model": np.array([[[0.1, 0.2]] * 2 + [[0.3, 0.4]] * 2])}
    two = {"plan": np.full((1, 4, 2), 0.5), "model": np.full((1, 4, 2), 0.9)}
    assert explored(one, {}) == explored({}) == {}
    alone = explored(one)["coverage"]
    assert alone["model"]["mean"] == pytest.approx([0.2, 0.3])
    assert 0.1 <= alone["model"]["low"][0] < 0.2 < alone["model"]["high"][0] <= 0.3
    both = explored(one, two)["coverage"]
    assert both["model"]["mean"] == pytest.approx([0.55, 0.6])
    assert (both["model"]["low"], both["model"]["high"]) == ([0, 0], [1, 1])  # 12.7 standard errors
    assert both["plan"]["low"] == both["plan"]["high"] == [0.5, 0.5]
    header, rule, *rows = exploration.coverage_table(both, {}).splitlines()
    assert header.split()[-2:] == ["1", "2"] and len(rule) == len(header) == len(rows[0])
    assert [row.split() for row in rows] == [["plan", "0.500", "0.500"], ["model", "0.550", "0.600"]]


def test_the_search_off_a_plan_is_compared_with_a_blind_replay() -> None:
    """Stream by stream; the second run has none for the walk of another version, so only what all have is there."""
    luck = np.random.default_rng(0).random((1, 6, 3)) / 2
    more = np.array([0.1, 0.2, 0.3])
    run = {"coverage": {"plan": luck}, "off_plan": {"plan": luck + more}, "blind_replay": {"plan": luck}}
    found = exploration.exploration_numbers([run], OPTIONS, 0)
    assert list(found) == ["coverage", "off_plan", "blind_replay", "off_plan_gain"]
    gain = found["off_plan_gain"]["plan"]
    assert all(gain[name] == pytest.approx(more) for name in ("mean", "low", "high"))
    header, _, row = exploration.off_plan_table(found).splitlines()
    assert header.split()[-6:] == ["2", "3", "4", "blind", "replay", "difference"]
    expected = [*(f"{share:.3f}" for share in (luck + more).mean((0, 1))), f"{luck.mean((0, 1))[-1]:.3f}"]
    assert row.split() == ["plan", *expected, "0.300", "[0.300,", "0.300]"]
    assert list(exploration.exploration_numbers([run, {"coverage": {"plan": luck}}], OPTIONS, 0)) == ["coverage"]


def test_coverage_that_memory_adds() -> None:
    """Stream by stream, so that what all streams have is no uncertainty; it may be negative."""
    luck = np.random.default_rng(0).random((1, 6, 1)) / 2
    wiped = np.concatenate([luck, luck + 0.1], axis=2)
    kept = wiped + np.array([-0.05, 0.3])
    found = explored({"model, context kept": kept, "model, context wiped at reset": wiped})
    (gain,) = found["coverage_gain"].values()
    assert all(gain[name] == pytest.approx([-0.05, 0.3]) for name in ("mean", "low", "high"))
    last = exploration.coverage_table(found["coverage"], found["coverage_gain"]).splitlines()[-1]
    assert last == "model, context kept, minus wiped          -0.050  0.300"


def test_the_picture_has_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only policies that were played are drawn."""
    shares = np.linspace(0, 1, 2 * 6).reshape(1, 2, 6)
    results = explored(dict.fromkeys(("model, context kept", "searcher", "random"), shares))
    drawn = []
    draw = lambda panels, **texts: drawn.append((panels, texts)) or adaptation_figure(panels, **texts)  # noqa: E731
    monkeypatch.setattr(figures, "adaptation_figure", draw)
    assert list(exploration.Exploration().figures(results, ["random", "searcher", "expert"])) == ["coverage"]
    (((panel,), texts),) = drawn
    assert texts["title"] == "Cells visited in a room without a goal"
    assert [*panel.curves] == ["model, context kept"] and [*panel.references] == ["random", "searcher"]
    np.testing.assert_allclose(panel.curves["model, context kept"]["mean"], shares.mean((0, 1)))
    assert exploration.Exploration().figures({}, ["random"]) == {}
