"""Searchers against scalar Python that is told of every move in full; as a source, as labels and as references."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from probes import CPU, START, alone_and_among_others
from refusals import check_refusal
from scalar_search import ScalarPermutedSearcher, ScalarPosteriorSampler, ScalarSearcher, check_search
from stage_one import play
from toy import assert_same
from worlds import room

from icrl import extensions
from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.evaluation.references import references_of
from icrl.extensions.searchers.explorers import CoveringPlan
from icrl.extensions.searchers.rooms import PermutedSearcher, PosteriorSampler, RoomSearcher
from icrl.extensions.searchers.searcher import Searcher, relabelled, searcher_of
from icrl.randomness import stream_seeds

if "worlds" in extensions.NAMES:
    from small_worlds import key_to_door

    from icrl.extensions.worlds.learners import LinearThompsonSampling, PosteriorSamplingRL, ThompsonSampling
if "exploration" in extensions.NAMES:
    from icrl.extensions.exploration.exploration import explored_by


def searcher_in(*options: str, noise: str = "0.3") -> tuple[Searcher, Any]:
    config: Any = load_config(["source=searcher", f"source.noise={noise}", *options])
    env = make_env(config.env)
    learner = Searcher.create(config, env, env.all_tasks()[:1], stream_seeds(0, 1), CPU)
    learner.set_clock(START)
    return learner, env


ENV = room(size=5, max_episode_steps=10)
SMALL, TASKS = ("env.size=5", "env.max_episode_steps=10"), ENV.all_tasks().repeat(2, 1)


def test_noise_mixes_the_searcher_and_random_actions() -> None:
    """In an open room the searcher never stays before it has found the goal, so a stay is a random action."""
    assert_same(*(play(one, ENV, TASKS, 60)[0] for one in (searcher_in(*SMALL, noise="0.0")[0], RoomSearcher(ENV))))
    actions = play(searcher_in(*SMALL, noise="1.0")[0], ENV, TASKS, 200)[0].action
    assert (actions.flatten().bincount(minlength=5) / actions.numel()).tolist() == pytest.approx([0.2] * 5, abs=0.02)
    played = play(searcher_in(*SMALL, noise="0.25")[0], ENV, TASKS, 400)[0]
    stays = (played.action[played.reward.cumsum(0) == 0] == 0).double().mean()
    assert stays.item() == pytest.approx(0.25 / 5, abs=0.025)
    assert {1, 2, 3, 4} <= set(played.action[0].tolist())  # ties are left to chance
    learner = searcher_in(noise="{kind: linear, progress: percent, points: [[0, 1.0], [1, 0.0]]}")[0]
    learner.set_clock(START._replace(percent=0.75))
    assert learner.update(None).metrics["noise"].tolist() == [0.25]  # type: ignore[arg-type]


def test_a_searcher_concludes_from_the_actions_that_were_done() -> None:
    """Also after random ones: the true permutation is never ruled out."""
    learner, env = searcher_in("env=dark_room_permuted", "env.size=3")
    tasks = env.all_tasks()[::7]
    _, streams = play(learner, env, tasks, 100)
    assert streams.carry.consistent.gather(1, tasks[:, 1:]).all()


KINDS: dict[str, Any] = {"dark_room": RoomSearcher, "dark_room_permuted": PermutedSearcher}
NONE = [("covering_plan", "env.random_start=true"), ("covering_plan", "env=dark_room_permuted")]
if "worlds" in extensions.NAMES:
    KINDS |= {"dark_key_to_door": RoomSearcher, "bandit_gaussian": ThompsonSampling}
    KINDS |= {"bandit_linear": LinearThompsonSampling, "anymdp": PosteriorSamplingRL}
    NONE.append(("covering_plan", "env=bandit"))
if "vectors" in extensions.NAMES:
    NONE.append(("nearest", "env=point_robot"))


def test_every_world_has_its_own_searcher_or_is_refused() -> None:
    for world, kind in KINDS.items():
        assert type(searcher_of("nearest", load_config([f"env={world}"]))) is kind
    for strategy, world in NONE:
        with pytest.raises(ConfigError, match=rf"strategy={strategy}: there is no such searcher with env\.name="):
            searcher_of(strategy, load_config([world]))


COVERED = {"covering_plan": 1.0, "nearest": 0.872, "posterior_sampling": 0.697}
COVERED |= {"turning_walk": 0.507, "persistent_walk": 0.458, "uniform_walk": 0.350}


@needs("exploration")
@pytest.mark.parametrize(("strategy", "covered"), COVERED.items())
def test_coverage_of_the_default_room_in_four_episodes(strategy: str, covered: float) -> None:
    """The numbers of the documentation, within four standard errors of the mean of 100 streams."""
    env = room()
    searcher = searcher_of(strategy, load_config(["source=searcher"]))
    found = explored_by(searcher, env, 100, seed=3)["coverage"][0, :, 3]
    assert found.mean() == pytest.approx(covered, abs=4 * found.std() / 10 + 0.001)


def test_learners_of_a_task_have_the_levels_of_noise_in_turn() -> None:
    """Learner k of a task has level k, after the last one the first again; learner by learner, stream by stream."""
    config: Any = load_config([*SMALL, "source=covering_plan", "source.noise=[0,0.4]", "source.num_learners=3"])
    learner = Searcher.create(config, ENV, ENV.all_tasks()[:2], stream_seeds(0, 6), CPU)
    learner.set_clock(START)
    levels = [0.0, 0.4, 0.0] * 2
    assert learner.update(None).metrics["noise"].tolist() == pytest.approx(levels)  # type: ignore[arg-type]
    tasks = torch.full((60, 1), 24)  # 10 streams of each learner
    played, plan = play(learner, ENV, tasks, 60)[0], play(CoveringPlan(ENV), ENV, tasks, 60)[0]
    same = (played.obs == plan.obs).all(0).view(6, 10).all(1)
    assert same.tolist() == [level == 0 for level in levels]


def labels_of(played: Rollout, strategy: str) -> torch.Tensor:
    """What a searcher of this strategy would have done, `[T, B]`."""
    columns = {name: column.T.numpy() for name, column in played._asdict().items()}
    config: Any = load_config([*SMALL, "source=searcher", f"source.strategy={strategy}"])
    return torch.from_numpy(relabelled(searcher_of(strategy, config), columns, 5)).T


@pytest.mark.parametrize("strategy", ["covering_plan", "nearest"])
def test_labels_are_what_the_searcher_does_without_noise(strategy: str) -> None:
    """On its own histories without noise they are the actions that it took (a nearest cell is one of several, so there
    only known goals count). With noise p they differ from the actions where these are random, at p * 4 / 5 of them."""
    for noise, same in (("0.0", 1.0), ("0.5", 0.6)):
        learner = searcher_in(*SMALL, f"source.strategy={strategy}", noise=noise)[0]
        played, _ = play(learner, ENV, TASKS, 100)
        known = (played.reward.cumsum(0) - played.reward > 0) | (strategy == "covering_plan")
        same_action = labels_of(played, strategy) == played.action
        assert same_action[known].double().mean().item() == pytest.approx(same, abs=0.02 * (same < 1))


def test_labels_of_a_random_walk_follow_what_was_done() -> None:
    """Before the goal is known the label repeats the last move that was done with probability 1/2 + 1/8, not the last
    label, and each other move with 1/8; afterwards it is the step of a shortest path."""
    learner = searcher_in(*SMALL, "source.strategy=uniform_walk", noise="0.0")[0]
    played, _ = play(learner, ENV, TASKS, 200)
    labels = labels_of(played, "persistent_walk")
    known = played.reward.cumsum(0) - played.reward > 0
    assert (labels == played.action)[known].all()
    moved = (~known & (played.timestep > 0))[1:] & (played.action[:-1] > 0)
    assert (labels[1:] == played.action[:-1])[moved].double().mean().item() == pytest.approx(0.625, abs=0.03)
    assert (labels > 0)[~known].all()


def test_a_learner_alone_equals_itself_among_others() -> None:
    alone_and_among_others("searcher", 30, 2, noise=[0.2])


def test_unknown_labels_are_refused() -> None:
    check_refusal(load_config, ["objective=dpt", "objective.labels=nearst"], ["did you mean nearest?", "an extension"])


@needs("worlds")
def test_a_searcher_credits_rewards_to_the_arm_that_was_pulled() -> None:
    """Also after random pulls."""
    learner, env = searcher_in("env=bandit")
    played, streams = play(learner, env, env.all_tasks()[:40], 50)
    pulled = torch.nn.functional.one_hot(played.action[:-1], env.spec.num_actions)  # the last is not counted yet
    assert torch.equal(streams.carry.count[:, 0], pulled.sum(0).float())
    assert torch.equal(streams.carry.total[:, 0], (pulled * played.reward[:-1, :, None]).sum(0).float())


# ---- searchers of rooms


def room_with(permuted: bool, flag: bool, **options: Any) -> Any:
    return room(permute_actions=permuted, terminate_on_goal=flag, **options)


def key_and_door(permuted: bool, flag: bool, **options: Any) -> Any:
    return key_to_door(show_key=flag, **options)


SCALAR = {RoomSearcher: ScalarSearcher, PosteriorSampler: ScalarPosteriorSampler}
ROOMS = [(kind, room_with) for kind in (*SCALAR, PermutedSearcher)]
ROOMS += [(kind, key_and_door) for kind in SCALAR if "worlds" in extensions.NAMES]


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "world"), ROOMS)
@settings(max_examples=5)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(2, 16), st.integers(0, 10**6))
def test_searchers_equal_a_scalar_search(
    kind: Any, world: Any, size: int, start: bool, flag: bool, num_steps: int, seed: int
) -> None:
    """Step by step, on a few tasks."""
    options = {"size": size, "random_start": start, "max_episode_steps": num_steps}
    env = world(kind is PermutedSearcher, flag, **options)
    check_search(env, kind(env), SCALAR.get(kind, ScalarPermutedSearcher), len(env.goal_columns), seed)


WALKS = [f"{kind} walk with goal memory" for kind in ("persistent", "turning", "uniform")]
EXPLORERS = {"dark_room": ["covering plan", *WALKS], "dark_room_permuted": []}


@pytest.mark.parametrize("name", EXPLORERS)
def test_each_room_has_its_own_references(name: str) -> None:
    """Without one start there is no plan."""
    options = [f"env={name}", "env.size=3", "env.max_episode_steps=6"]
    assert list(references_of(make_env(load_config(options).env))) == ["searcher", *EXPLORERS[name]]
    assert list(references_of(make_env(load_config([*options, "env.random_start=true"]).env))) == ["searcher"]
