"""All stages chained: the frozen model learns unseen tasks in its context, and what a run leaves is all there."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from harness import curves_of, done, refusal
from installed import needs
from PIL import Image
from torch import Tensor

from icrl import extensions
from icrl.data.history_store import open_histories
from icrl.evaluation.diagnostics import OF_DIAGNOSTIC
from icrl.evaluation.protocol import PARTS
from icrl.evaluation.references import EXACT
from icrl.nn.gpt import GPT
from icrl.runs.files import read_json

# A room in which a model has to tell goals apart, and some 20 s on one core. Success on the 6 held-out goals, in the
# first and over the last quarter of 16 episodes, for seeds 0, 1 and 2:
#
#                                     seed 0   seed 1   seed 2
#     first episode                     0.12     0.18     0.12
#     last quarter                      0.71     0.68     0.73
#     last quarter, context wiped       0.12     0.09     0.12
#     random, exact                     0.17     0.17     0.17
#     source agents, end of life        0.96     0.92     0.95
SEED = 0
LEARNS = (
    *("name=learns", "device=cpu", "num_threads=1", f"seed={SEED}"),
    *("env=dark_room_classic", "env.size=5", "env.max_episode_steps=10", "tasks.num_train=18"),
    *("source.num_learners=4", "source.num_envs=5", "source.num_env_steps=5000", "source.history_steps=5000"),
    *("source.hidden_size=32", "source.videos_per_task=0"),
    *("objective=ad", "objective.weighting=improvement", "data.keep_every=12", "data.kept_steps=0"),
    *("data.num_development_tasks=2", "data.min_final_success=0"),
    *("model.tokens=transition", "model.position=env_time", "model.obs_encoding=coordinates", "model.context_len=60"),
    *("model.embed_dim=32", "model.num_layers=2", "model.num_heads=2", "model.ff_dim=64"),
    *("optimizer=adamw", "optimizer.learning_rate.initial=0.003", "optimizer.learning_rate.final=0.00002"),
    *("optimizer.learning_rate.warmup.until=0.2", "optimizer.weight_decay=0.01", "policy.temperature=1"),
    *("trainer.num_iterations=400", "trainer.mini_batch_size=32", "summaries.num_summaries=10"),
    *("checkpoints.num_checkpoints=2", "evals.num_evals=0", "evals.eval_interval=300"),
    *("evals.num_eval_episodes=16", "evals.num_eval_environments=4", "evals.async_eval=false"),
    *("evaluation.num_episodes=16", "evaluation.num_streams=10"),
    *("evaluation.num_bootstrap=100", "evaluation.videos=false", "evaluation.checkpoint=best"),
    *("evaluation.temperatures=[0]", "evaluation.ablations=true", "evaluation.num_probe_streams=10"),
)
DRAWS = True  # test_pictures
EPISODES = 16
WALKS = tuple(f"{kind} walk with goal memory" for kind in ("persistent", "turning", "uniform"))
SEARCHERS = ("searcher", "covering plan", *WALKS) if "searchers" in extensions.NAMES else ()
POLICIES = {
    *("model, held-out tasks", "model, development tasks", "model, training tasks", "random", "optimum"),
    *("A2C, training tasks, start of life", "A2C, training tasks, end of life", *SEARCHERS),
}
PROBED = "probes" in extensions.NAMES
ABLATIONS = ("blank", "shuffled", "other_task", "wiped") if PROBED else ()
MEASURES = {"success", "returns", "steps_to_goal"}


class Learned(NamedTuple):
    root: Path
    results: dict[str, Any]

    def success(self, policy: str, episodes: slice) -> float:
        return float(np.mean(self.results["curves"][policy]["success"]["mean"][episodes]))


FIRST, LAST = slice(1), slice(-EPISODES // 4, None)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    root = tmp_path_factory.mktemp("learned")
    for stage in ("train_agents", "train_gpt", "evaluate"):
        done(stage, root, preset=LEARNS)
    return Learned(root, read_json(root / "logs/learns/evaluation/results.json"))


def test_the_model_learns_unseen_goals_in_its_context(learned):
    """As the source agents did over their lives."""
    assert learned.success("A2C, training tasks, end of life", LAST) > 0.85
    assert learned.success("A2C, training tasks, start of life", FIRST) < 0.4
    first, last = (learned.success("model, held-out tasks", episodes) for episodes in (FIRST, LAST))
    random, optimum = (learned.success(name, LAST) for name in ("random", "optimum"))
    assert last > 0.5 and last > random + 0.3 and last > first + 0.2
    assert last <= optimum == 1.0 and all(random < learned.success(name, LAST) <= 1 for name in SEARCHERS)
    returns = learned.results["curves"]["model, held-out tasks"]["returns"]["mean"]
    assert max(returns) < learned.results["curves"]["optimum"]["returns"]["mean"][0]
    assert np.mean(returns[LAST]) > 4 * returns[0]


@needs("probes")
def test_ablations_undo_what_was_learned(learned):
    """With a context without rewards, of another task, or of one episode the model is not better than chance."""
    whole = learned.results["final"]["held_out"]
    for name in ("blank", "other_task", "wiped"):
        found = learned.results["ablations"][name]["final"]
        assert found["success"]["mean"] < learned.success("random", LAST) + 0.15, name
        assert found["success"]["mean"] < whole["success"]["mean"] - 0.3, name
        assert not EXACT or found["area"]["mean"] < whole["area"]["mean"] - 0.1, name


def test_held_out_tasks_have_no_histories(learned):
    histories = open_histories(learned.root / "histories/learns")
    tasks, columns = histories.manifest["tasks"], histories.columns
    assert columns["obs"].shape == (18 * 4 * 5, 5000 // 5)  # lives of learners in environments, and their steps
    assert sorted(tasks["train"] + tasks["held_out"]) == list(range(24)) and len(tasks["train"]) == 18
    goals = [goal for (goal,) in tasks["all"]]
    rows, steps = np.nonzero(columns["reward"])
    rewarded = zip(histories.row_tasks[rows].tolist(), columns["next_obs"][rows, steps].tolist(), strict=True)
    assert set(rewarded) == {(task, goals[task]) for task in tasks["train"]}
    parts = {"held_out": tasks["held_out"], "train": tasks["train"][:-2], "development": tasks["train"][-2:]}
    for part, numbers in parts.items():
        assert learned.results[f"{part}_tasks"] == [[goals[task]] for task in numbers]


def test_results_of_each_part(learned):
    results = learned.results
    assert set(results["curves"]) == POLICIES
    if "paired" in extensions.NAMES:
        assert set(results["differences"]) == {*SEARCHERS[1:4], *["optimum"] * bool(EXACT)}
    assert set(results["decodings"]) == {"1", *["0"] * PROBED} and set(results["ablations"]) == set(ABLATIONS)
    assert set(results["final"]) == {"held_out", "development", "train"}
    for part, tasks in (("held_out", 6), ("development", 2), ("train", 16)):
        final, curves = results["final"][part], results["curves"][PARTS[part]]
        assert len(final["success_per_task"]) == tasks
        for measure in MEASURES:
            assert len(curves[measure]["mean"]) == EPISODES
            assert final[measure]["mean"] == pytest.approx(np.mean(curves[measure]["mean"][LAST]))
    sidecars = (learned.root / "logs/learns/gpt").glob("best-*.json")
    assert results["checkpoint"] in [read_json(path)["state_sha256"] for path in sidecars]


def test_episodes_are_kept(learned):
    with np.load(learned.root / "logs/learns/evaluation/episodes.npz", allow_pickle=False) as arrays:
        episodes = {name: arrays[name] for name in arrays.files}
    played = {name.removesuffix("/success") for name in episodes if name.endswith("/success")}
    lives = {"A2C, training tasks, start of life", "A2C, training tasks, end of life"}
    own = {name for name in played if OF_DIAGNOSTIC not in name}
    assert own == {"held_out", "development", "train", *SEARCHERS, *["temperature 0"] * PROBED, *ABLATIONS, *lives}
    success = learned.results["curves"]["model, held-out tasks"]["success"]["mean"]
    np.testing.assert_allclose(episodes["held_out/success"].mean((0, 1)), success)
    assert episodes["held_out/returns"].shape == (6, 10, EPISODES) and episodes["train/returns"].shape[0] == 16


def test_pictures(learned):
    drawn = ["goals", "adaptation", *["probes"] * PROBED, *["first_success"] * ("first_success" in extensions.NAMES)]
    drawn += [name for name in ("moved_goal", "coverage") if name in learned.results]
    for name in ("source/goals", *(f"evaluation/{name}" for name in drawn)):
        with Image.open(learned.root / f"logs/learns/{name}.png") as picture:
            assert len(picture.getcolors(maxcolors=1 << 24)) > 10


def test_each_curve_has_its_own_axis(learned):
    """Env steps of a learner, or updates."""
    per_update = 5 * 10
    for folder, kinds, steps in (
        ("source", {"source", "update"}, range(10 * per_update, 5001, 10 * per_update)),
        ("gpt", {"train"}, range(40, 401, 40)),
        ("gpt/evals", {"in_context"}, (0, 300, 400)),
    ):
        curves = curves_of(learned.root / "logs/learns" / folder)
        assert {tag.split("/")[0] for tag in curves} == kinds
        assert all(shown == list(steps) for shown in curves.values())


def test_double_precision_is_that_of_all_that_is_learned(tmp_path, monkeypatch):
    seen: set[torch.dtype] = set()
    forward = GPT.forward

    def noting(self: GPT, *arguments: Any) -> Tensor:
        logits = forward(self, *arguments)
        seen.add(logits.dtype)
        return logits

    monkeypatch.setattr(GPT, "forward", noting)
    for stage in ("train_agents", "train_gpt", "evaluate"):
        done(stage, tmp_path, "device.dtype=float64", "device.amp_dtype=none")
    state = torch.load(tmp_path / "logs/tiny/gpt/last-000000006.pt", weights_only=True)
    assert seen == {value.dtype for value in state["model"].values() if value.is_floating_point()} == {torch.float64}
    assert "device.dtype=float64" in refusal("evaluate", tmp_path, "device.amp_dtype=none")
