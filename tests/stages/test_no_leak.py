"""The main job learns from rewards of its training tasks and from a bonus for new cells alone.

No scripted action, no label of an optimal action and no reward of a held-out goal enters its histories, windows or
trials. Every check is made of a small run of the main recipe, and fails where a leak is planted in one of its stages.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from harness import done
from torch import Tensor
from toy import weights_of

from icrl import extensions
from icrl.app.compose import load_config
from icrl.config.options import walk
from icrl.contracts import Rollout
from icrl.data.history_store import Histories, open_histories
from icrl.data.lives import step_weights
from icrl.data.windows import Windows
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.rooms import DarkRoom, RoomFamily
from icrl.envs.tasks import development_of, split_tasks
from icrl.evaluation.trained import plain_gpt
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise
from icrl.recording import record
from icrl.runs.evaluations import Evaluations
from icrl.sources.a2c import A2C
from icrl.training import program, trials
from icrl.training.policy_gradient import TrialBatch, discoveries, group_advantages, parameters_of
from icrl.training.trials import TrialPolicy, Trials
from icrl.training.updates import Updater

MAIN = (  # the main recipe, small: what is not here is as in `make run`
    *("name=tiny", "device=cpu", "num_threads=1", "device.amp_dtype=none"),
    *("env.size=5", "env.max_episode_steps=8", "tasks.num_train=14", "data.num_development_tasks=3"),
    *("source.num_learners=2", "source.num_envs=4", "source.videos_per_task=0"),
    *("source.num_env_steps=400", "source.history_steps=400", "data.min_final_success=0"),
    *("model.context_len=24", "model.embed_dim=16", "model.ff_dim=32", "trainer.num_iterations=8"),
    *("summaries.num_summaries=2", "checkpoints.num_checkpoints=1", "evaluation.num_episodes=11"),
    *("evals.num_evals=1", "evals.async_eval=false", "evals.num_eval_episodes=16", "finetune.num_mini_batches=2"),
    *("finetune.num_iterations=2", "finetune.trial_steps=24", "finetune.num_unsolvable=4", "finetune.num_streams=3"),
    *("finetune.num_rooms=6", "model.max_size=9"),
)
CONFIG = load_config(MAIN)
ENV = make_env(CONFIG.env)
SPEC, TASKS, SPLIT = ENV.spec, ENV.all_tasks(), split_tasks(ENV, CONFIG)
HELD_OUT, LEARNED = TASKS[SPLIT.held_out], sorted({*SPLIT.train} - {*development_of(ENV, CONFIG, SPLIT.train)})
TRAINING_GOALS, LEARNED_GOALS = ({int(TASKS[task, 0]) for task in tasks} for tasks in (SPLIT.train, LEARNED))
HIDDEN = TASKS[[*SPLIT.held_out, *development_of(ENV, CONFIG, SPLIT.train)]]
CORNER = (CONFIG.model.max_size - SPEC.width) // 2 if CONFIG.model.obs_encoding == "smooth" else 0
GRID = ENV.family(CONFIG.model.max_size, CORNER, (5, 8), HIDDEN)  # trials are played in it, around the room of the run
assert GRID
OWN_GOALS, HIDDEN_GOALS = ({*GRID.translated(tasks)[:, 0].tolist()} for tasks in (TASKS[LEARNED], HIDDEN))
NOWHERE, SIDE = CONFIG.model.max_size**2, DarkRoom(CONFIG.env.model_copy(update={"size": CONFIG.model.max_size}))
FOLDERS = {"train_agents": "source", "train_gpt": "gpt", "finetune": "finetuned"}
CPU, FIELDS = torch.device("cpu"), ("obs", "action", "reward")


class Played(NamedTuple):
    """Rollout `[T, B]` of streams of `tasks`, and the steps whose action is the sample of the policy itself."""

    tasks: Tensor
    steps: Rollout
    own: Tensor


class Seen(NamedTuple):
    """What the stages of a run played and what their updates were given."""

    root: Path
    unrolls: list[Played]
    trials: list[Played]
    windows: list[Any]
    parts: list[TrialBatch]

    @property
    def histories(self) -> Histories:
        return open_histories(self.root / "histories/tiny")


def trained(root: Path, stages: Sequence[str], *leak: Any, base: Path | None = None, lies: bool = False) -> Seen:
    """Run `stages` after the earlier ones of the run in `base`, with a `leak`: options, and changes of the code. With
    `lies` no label of the optimum is true, in the world or in a batch, and no evaluation is made beside training."""
    seen, update, planner = Seen(root, [], [], [], []), Updater.update, DarkRoom.optimal_action
    options = [*filter(lambda part: isinstance(part, str), leak), f"trainer.evaluate={not lies}"]
    if base and stages[0] != "train_agents":
        shutil.copytree(base, root)
        shutil.rmtree(root / "logs/tiny" / FOLDERS[stages[0]])

    def noted(updater: Updater, batch: Any, clock: Any) -> Any:
        (seen.parts if isinstance(batch, TrialBatch) else seen.windows).append(batch)
        known = lies and hasattr(batch, "optimal_action")
        return update(updater, batch._replace(optimal_action=batch.action * 0) if known else batch, clock)

    with pytest.MonkeyPatch.context() as patch:
        for change in filter(callable, leak):
            change(patch)
        patch.setattr(Updater, "update", noted)
        patch.setattr("icrl.sources.collect.rollout", partial(watched, seen.unrolls))
        patch.setattr("icrl.training.trials.rollout", partial(watched, seen.trials))
        if lies:
            patch.setattr(DarkRoom, "optimal_action", lambda *at: (planner(*at) + 1 + at[1].inner % 4) % 5)
        for stage in stages:
            done(stage, root, *options, preset=MAIN)
    return seen


@torch.no_grad()
def watched(kept: list[Played], policy: Any, env: Any, streams: Any, num_steps: int, noise: Noise) -> Any:
    """Rollout that is kept. The weights of the learner or the model say what they would do with the same noise."""
    numbers = Noise(noise.seeds, noise.time).draw(num_steps)
    steps, after = rollout(policy, env, streams, num_steps, noise)
    if type(policy) is A2C:
        chance = torch.stack([policy.heads.probabilities(obs) for obs in steps.obs])
    elif type(policy) is TrialPolicy:
        columns = [column.T for column in (steps.obs, steps.action, steps.reward, steps.timestep)]
        batch = TrialBatch(*columns, *[torch.empty(0)] * 3)
        chance = parameters_of(SPEC, policy.model, batch).softmax(-1).transpose(0, 1)
    else:
        chance = torch.full((*steps.obs.shape, SPEC.num_actions), torch.nan)  # a stranger
    high, of_action = (x.gather(-1, steps.action[..., None])[..., 0] for x in (chance.cumsum(-1), chance))
    own = (high - of_action - 1e-4 <= numbers) & (numbers <= high + 1e-4)
    kept.append(Played(streams.state.task, steps, own))
    return steps, after


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """An honest run of all stages, and one with lies."""
    return [trained(tmp_path_factory.mktemp("run"), [*FOLDERS], lies=lies) for lies in (False, True)]


def check_labels(one: Seen, lied: Seen) -> None:
    """The runs have the same bits, but for the labels."""
    for name, column in one.histories.columns.items():
        same = np.asarray(column) == np.asarray(lied.histories.columns[name])
        assert not same.any() if name == "optimal_action" else same.all(), "histories"
    for name in ("gpt", "finetuned"):
        ours, theirs = (weights_of(run.root / "logs/tiny" / name) for run in (one, lied))
        assert ours.keys() == theirs.keys() and all(map(torch.equal, ours.values(), theirs.values())), name


def check_actions(run: Seen) -> None:
    """What was recorded, distilled and reinforced are samples of the A2C agents, of the same, and of the model."""
    assert all(played.own.all() for played in run.unrolls), "agents"
    if run.unrolls:
        actions = torch.cat([played.steps.action for played in run.unrolls]).T.numpy()
        assert np.array_equal(actions[:, : run.histories.columns["action"].shape[1]], run.histories.columns["action"])
    if run.windows:
        store, rows = run.histories, np.flatnonzero(np.isin(run.histories.row_tasks, LEARNED))
        lives = {name: torch.from_numpy(np.array(column[rows])) for name, column in store.columns.items()}
        lives["reward"], ends = torch.from_numpy(store.rewards(rows)), (lives["terminated"] | lives["truncated"]) > 0
        weight = step_weights(
            CONFIG.objective.weighting, CONFIG.objective.discount, SPEC, lives["reward"].numpy(), ends.numpy()
        )
        known = {*episodes(lives | {"weight": torch.from_numpy(weight).half()})}
        found = [episode for batch in run.windows for episode in episodes(batch._asdict())]
        assert len(found) > 2 * len(run.windows) and known.issuperset(found), "windows"
    assert all(played.own.all() for played in run.trials), "trials"


def check_goals(run: Seen) -> None:
    """No agent plays a held-out task; windows and trials have no development task either, nor has another room its goal
    on such a cell of the grid. A trial pays for its own goal and for new cells."""
    if run.unrolls:
        tasks = {int(goal) for played in run.unrolls for goal in played.tasks[:, 0]}
        assert paid([played.steps for played in run.unrolls]) <= tasks == TRAINING_GOALS, "histories"
        cells = run.histories.columns["next_obs"][run.histories.rewards() > 0]
        assert {*cells.tolist()} <= TRAINING_GOALS, "histories"
    assert paid(run.windows) <= LEARNED_GOALS, "windows"
    each = len(run.parts) // max(1, len(run.trials))
    for number, (tasks, steps, _) in enumerate(run.trials):
        own = (tasks[:, 1:] == GRID.translated(TASKS)[0, 1:]).all(1)
        assert {*tasks[own, 0].tolist()} == OWN_GOALS | {NOWHERE}, "trials"
        assert paid([steps]) and not {*tasks[:, 0].tolist()} & HIDDEN_GOALS and own.sum() == len(own) - 18, "trials"
        assert not steps.reward[:, tasks[:, 0] == NOWHERE].any(), "trials"
        value = steps.reward + CONFIG.finetune.bonus * first_visits(steps)
        advantage = group_advantages(value, tasks.unique(dim=0, return_inverse=True)[1], CONFIG.finetune.discount)
        expected = rows_of(column.T for column in (steps.obs, steps.action, steps.reward, steps.timestep, advantage))
        for start in range(0, each, CONFIG.finetune.num_mini_batches):
            parts = run.parts[number * each :][start : start + CONFIG.finetune.num_mini_batches]
            assert rows_of(map(torch.cat, list(zip(*parts, strict=True))[:5])) == expected, "advantages"


def check_bonus(bonus: Callable[..., Tensor], model: Any) -> None:
    """The bonus does not know the goal: moving one that is out of reach changes nothing, and until the first success of
    a trial it is that of a room without any."""
    goals = torch.tensor([*TASKS[:, 0].tolist(), ENV.num_cells, ENV.num_cells + 1, 1000])[:, None]
    for seed in range(4):
        seeds, actor = torch.full((len(goals),), seed), TrialPolicy(model)
        steps, _ = rollout(actor, ENV, start_streams(actor, ENV, goals, seeds), 24, Noise(seeds))
        assert not steps.reward[:, -3:].any() and not steps.terminated[:, -3:].any()
        found, late = bonus(SPEC, steps).T, (steps.reward > 0).T.cumsum(1) > 0
        assert torch.equal(found[:-1] | late[:-1], found[-1] | late[:-1]), "bonus"
        assert found[-1].any() and not found[late].any(), "bonus"


def paid(batches: Sequence[Any]) -> set[int]:
    """Cells where a step of `batches` has a reward."""
    return {int(cell) for batch in batches for cell in batch.next_obs[batch.reward > 0]}


def episodes(columns: dict[str, Tensor]) -> Iterator[bytes]:
    """All whole episodes of rows `[N, T]`."""
    last = (columns["terminated"] > 0) | (columns["truncated"] > 0)
    steps = torch.stack([columns[name].float() for name in (*FIELDS, "next_obs", "weight")], -1).numpy()
    for row, end in last.nonzero().tolist():
        if (start := end - int(columns["timestep"][row, end])) >= 0:
            yield steps[row, start : end + 1].tobytes()


def first_visits(steps: Rollout) -> Tensor:
    """Steps `[T, B]` to cells that are new in their trials, before the first success."""
    new, seen = torch.zeros_like(steps.reward), [{int(start)} for start in steps.obs[0]]
    for t, stream in product(*map(range, new.shape)):
        if not steps.reward[: t + 1, stream].any():
            seen[stream].add(int(steps.obs[t, stream]))
            new[t, stream] = int(steps.next_obs[t, stream]) not in seen[stream]
            seen[stream].add(int(steps.next_obs[t, stream]))
    return new


def rows_of(columns: Any) -> list[bytes]:
    """Rows of columns `[B, T]`, in an order of their own."""
    return sorted(row.tobytes() for row in torch.stack([column.float() for column in columns], -1).numpy())


def planted(owner: Any, name: str, new: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Leak that puts `new` in the place of a function of the code, which becomes its first argument."""
    old = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *given: new(old, *given))


def mixed(noise: Tensor, scripted: Tensor, own: Tensor) -> Tensor:
    return torch.where(noise < 0.1, scripted, own)


ALL_TRAINING = planted(program, "windows_of", lambda windows, *at: windows(*at[:2], SPLIT.train, *at[3:]))
EVALUATED = planted(Evaluations, "start", lambda _, *at: [one.mul_(1.001) for one in at[2]["model"].values()])
HELD_OUT_AGENTS = planted(record, "make_learners", lambda f, *at: f(*at[:2], at[2] * 0 + HELD_OUT[0], *at[3:]))
HELD_OUT_TRIALS = planted(Trials, "__init__", lambda init, *at: init(*at[:3], TASKS, *at[4:]))
OPTIMUM = planted(trials, "discoveries", lambda _, spec, steps: steps.action == steps.optimal_action)
KNOWN = planted(RoomFamily, "optimal_action", lambda _, world, state: DarkRoom.optimal_action(SIDE, state))
OTHER_ROOMS = planted(RoomFamily, "__init__", lambda init, *at: init(*at[:-1], at[-1][:0]))
PAID = planted(
    trials, "discoveries", lambda new, *at: new(*at) | torch.isin(at[1].next_obs, GRID.translated(HELD_OUT)[:, 0])
)
SCRIPTED = planted(A2C, "act", lambda act, *at: (mixed(at[3], at[2].obs % 5, act(*at)[0]), at[1]))
SCRIPTED_TRIALS = planted(GPTPolicy, "choose", lambda choose, *at: mixed(at[3], at[2] % 5, choose(*at)))
SCRIPTED_WINDOWS = planted(Windows, "at", lambda windows, *at: windows(*at)._replace(action=windows(*at).obs % 5))
SOLVABLE = planted(RoomFamily, "unsolvable", lambda _, world, tasks: GRID.translated(HELD_OUT)[[0] * len(tasks)])
TOLD = planted(A2C, "act", lambda act, *at: (mixed(at[3], at[2].optimal_action, act(*at)[0]), at[1]))
PLAN = "covering_plan"
LEAKS: dict[str, tuple[Any, ...]] = {  # name: the check that finds it, where, and the stage that it is planted in
    "labels of the planner": (check_labels, "gpt", "train_gpt", "objective.name=dpt"),
    "evaluation": (check_labels, "gpt", "train_gpt", EVALUATED),
    "bonus for the optimum": (check_labels, "finetuned", "finetune", OPTIMUM, KNOWN),
    "optimum in agents": (check_labels, "histories", "train_agents", TOLD),
    "script in agents": (check_actions, "agents", "train_agents", SCRIPTED),
    "script in windows": (check_actions, "windows", "train_gpt", SCRIPTED_WINDOWS),
    "script in trials": (check_actions, "trials", "finetune", SCRIPTED_TRIALS),
    "held-out agents": (check_goals, "histories", "train_agents", HELD_OUT_AGENTS),
    "development windows": (check_goals, "windows", "train_gpt", ALL_TRAINING),
    "trials of all goals": (check_goals, "trials", "finetune", HELD_OUT_TRIALS),
    "held-out goals of other rooms": (check_goals, "trials", "finetune", OTHER_ROOMS),
    "solvable trials": (check_goals, "trials", "finetune", SOLVABLE),
    "bonus for held-out goals": (check_goals, "advantages", "finetune", PAID),
}
if "searchers" in extensions.NAMES:
    LEAKS |= {
        "labels of a searcher": (check_labels, "gpt", "train_gpt", "objective.name=dpt", f"objective.labels={PLAN}"),
        "script as a source": (check_actions, "agents", "train_agents", "source=searcher", f"source.strategy={PLAN}"),
    }


def test_nothing_but_rewards_of_training_tasks_and_new_cells_is_learned_from(runs):
    """Also: evaluations on development tasks beside training, which one of the runs does without, change no bit."""
    main, small = ({n: v for n, v, _ in walk(one) if type(v) in (str, bool)} for one in (load_config([]), CONFIG))
    sizes_apart = {name for name in main.keys() | small.keys() if main.get(name) != small.get(name)}
    assert sizes_apart == {"name", "run", "device.type", "device.amp_dtype", "evals.async_eval"}
    honest = runs[0]
    assert (len(honest.windows), len(honest.trials), len(honest.parts)) == (8, 2, 4)
    assert len(paid(honest.windows)) > 5 and len(paid([played.steps for played in honest.trials])) > 5
    check_labels(*runs)
    check_actions(honest)
    check_goals(honest)


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found(runs, tmp_path, leak):
    check, where, stage, *changes = LEAKS[leak]
    compared = enumerate(runs[: 1 + (check is check_labels)])
    found = [trained(tmp_path / str(n), [stage], *changes, base=one.root, lies=n > 0) for n, one in compared]
    with pytest.raises(AssertionError, match=f"^{where}"):
        check(*found)


def test_the_bonus_does_not_know_the_goal(runs, monkeypatch):
    monkeypatch.setattr(DarkRoom, "optimal_action", lambda _, state: state.task[..., 0] % 5)  # a label that tells it
    model = plain_gpt(CONFIG, SPEC, weights_of(runs[0].root / "logs/tiny/finetuned"), CPU)
    check_bonus(discoveries, model)
    with pytest.raises(AssertionError, match="^bonus"):
        check_bonus(lambda *given: discoveries(*given) & (given[1].action != given[1].optimal_action), model)
