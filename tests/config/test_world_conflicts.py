"""What does not go with the point game is refused, and its numbers stay within what is promised."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from icrl.config.world_conflicts import LARGEST, READS_POINTS, largest_coordinate, of_point_game
from point_worlds import legal_in, point_config
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.training_schema import SOURCES
from icrl.contracts import ConfigError, EnvSpec, Step
from icrl.data.history_store import column_dtypes
from icrl.envs import make_env
from icrl.point_game.world import GamesState, PointFamily
from icrl.randomness import stream_seeds, uniform

WORLD = ("experiment=point_game", "evaluation.num_episodes=4")
CLOUD = "{max_num_points: 5, max_value: 6}"

REFUSED = {  # what is set -> what the message must name
    "source=dqn": ["source.name=dqn", "env.name=point_game", "a2c, ppo, random"],
    "env.max_episode_steps=27": ["env.max_episode_steps=27", "env.clouds=", "env.dimensions=[4]", str(LARGEST)],
    "env.clouds=[]": ["env.clouds=[]", "max_num_points >= 2, max_value >= 1"],
    "env.clouds=[3]": ["env.clouds=[3]", "must be a list of mappings"],
    "env.clouds=[[max_num_points,max_value]]": ["env.clouds=", "must be a list of mappings"],
    "env.clouds=[max_num_points]": ["env.clouds=", "must be a list of mappings"],
    "env.clouds=[{max_num_points: 5}]": ["env.clouds=[{'max_num_points': 5}]"],
    "env.clouds=[{max_num_points: 5, max_value: 6, more: 1}]": ["env.clouds=", "must be mappings"],
    "env.clouds=[{max_num_points: 1, max_value: 6}]": ["env.clouds=", "max_num_points >= 2"],
    "env.clouds=[{max_num_points: 5, max_value: 0}]": ["env.clouds=", "max_value >= 1"],
    "env.clouds=[{max_num_points: 1001, max_value: 6}]": ["env.clouds=", "<= 1000"],
    "env.clouds=[{max_num_points: 5, max_value: 1001}]": ["env.clouds=", "<= 1000"],
    "env.clouds=[{max_num_points: 5.0, max_value: 6}]": ["env.clouds=", "both ints"],
    "env.clouds=[{max_num_points: 5, max_value: true}]": ["env.clouds=", "both ints"],
    f"env.clouds=[{CLOUD},{{}}]": ["env.clouds=", "must be mappings"],
    "env.dimensions=[]": ["env.dimensions=[]", "at least one number"],
    "env.dimensions=[3,4,3]": ["env.dimensions=[3, 4, 3]", "none twice"],
    "env.dimensions=[1]": ["env.dimensions"],
    "env.dimensions=[10]": ["env.dimensions"],
    "env.role=judge": ["env.role=judge", "host, agent"],
    "source.vectorization=process": ["source.vectorization=process", "env.name=point_game"],
    "source.videos_per_task=1": ["source.videos_per_task=1", "env.name=point_game"],
    "evaluation.videos=true": ["evaluation.videos=True", "env.name=point_game"],
    "model.induction=true": ["model.induction=True", "env.name=point_game"],
    "objective=dpt": ["objective.name=dpt", "env.name=point_game"],
}


def test_bandits_have_so_many_arms_in_all() -> None:
    with pytest.raises(ConfigError, match=r"env\.num_tasks=10001 x env\.num_arms=100 must be at most 1000000 arms"):
        load_config(["env=bandit", "env.num_arms=100", "env.num_tasks=10001"])
    assert load_config(["env=bandit", "env.num_arms=100", "env.num_tasks=10000"]).env.name == "bandit"


@pytest.mark.parametrize("overrides", REFUSED)
def test_a_conflict_names_all_fields_it_is_between(overrides: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config([*WORLD, overrides])
    for part in REFUSED[overrides]:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    "overrides",
    [
        "",
        "env.role=agent env.opponents=[zeillinger]",
        "env.max_episode_steps=25",  # 4 * 10 * 2**25 fits, twice as much does not
        "env.clouds=[{max_num_points: 2, max_value: 1}]",
        "env.clouds=[{max_num_points: 1000, max_value: 1000}] env.max_episode_steps=19",
        "env.dimensions=[2,9,3] env.max_episode_steps=10",
        f"env.clouds=[{CLOUD},{CLOUD}]",
    ],
)
def test_what_only_nearly_conflicts_is_allowed(overrides: str) -> None:
    load_config([*WORLD, *split(overrides)])


def split(overrides: str) -> list[str]:
    """At the spaces before a field."""
    return [part if part.startswith("env.") else f"env.{part}" for part in overrides.split(" env.") if part]


@pytest.mark.parametrize("source", SOURCES)
def test_sources_that_read_one_number_are_refused(source: str) -> None:
    config = load_config(WORLD)
    config.source.name = source
    said = [message for broken, message in of_point_game(config) if broken]
    if source in READS_POINTS:
        assert not said
    else:
        assert len(said) == 1 and f"source.name={source} " in said[0] and "env.name=point_game" in said[0]


def test_other_worlds_know_nothing_of_it() -> None:
    load_config(["source=dqn"])
    load_config(["model.induction=true", "evaluation.videos=true"])


def test_the_largest_world_fits_its_dtype() -> None:
    config = load_config([*WORLD, "env.max_episode_steps=25"]).env
    spec: EnvSpec = make_env(config).spec
    assert 2**30 < spec.num_obs <= 2**31
    assert column_dtypes(spec)["obs"] == "uint32"


@settings(max_examples=12, deadline=None)
@given(
    role=st.sampled_from(["host", "agent"]),
    dimensions=st.lists(st.integers(2, 5), min_size=1, max_size=2, unique=True),
    max_value=st.sampled_from([1, 3, 50, 1000]),
    num_steps=st.integers(1, 14),
    moves=st.lists(st.sampled_from(["largest", "smallest", "random"]), min_size=14, max_size=14),
    seed=st.integers(0, 10**6),
)
def test_no_number_is_beyond_what_is_promised(
    role: str, dimensions: list[int], max_value: int, num_steps: int, moves: list[str], seed: int
) -> None:
    """Whatever is played, and most of all where coordinates grow as fast as they can."""
    opponents = (
        ["all_coordinates", "zeillinger"]
        if role == "agent"
        else ["last", "order_10" + "".join("2345"[: max(dimensions) - 2])]
    )
    config = point_config(
        role=role,
        dimensions=dimensions,
        opponents=opponents,
        clouds=[{"max_num_points": 4, "max_value": max_value}, {"max_num_points": 6, "max_value": 1}],
        max_episode_steps=num_steps,
    )
    env = PointFamily(config)
    tasks = env.all_tasks().repeat(4, 1)
    seeds = stream_seeds(seed, len(tasks))
    largest = largest_coordinate(config)
    assert env.spec.num_obs == largest + 2
    dtype = column_dtypes(env.spec)["obs"]
    state, step = env.reset(tasks, seeds)
    for time, move in enumerate(moves):
        scores = uniform(seeds[:, None], torch.arange(env.spec.num_actions) + 100 * time)
        if move != "random":
            tried = [env.step(state, action)[1].final_obs if ok else None for action, ok in everyone(env, step)]
            scores = torch.stack(
                [scores[:, 0] * 0 - 1 if obs is None else env.points_of(obs).amax((1, 2)) for obs in tried], 1
            )
            scores = -scores if move == "smallest" else scores
        legal = legal_in(env, step.obs)
        state, step = env.step(state, scores.double().masked_fill(~legal, -torch.inf).argmax(1))
        for obs in (step.obs, step.final_obs):
            assert obs.min() >= 0 and obs.max() < env.spec.num_obs
            assert env.points_of(obs).max() <= largest
            assert np.array_equal(obs.numpy().astype(dtype).astype(np.int64), obs.numpy())


def everyone(env: PointFamily, step: Step) -> list[tuple[Tensor, bool]]:
    """Each action for all streams, and whether it is legal in all of them."""
    legal = legal_in(env, step.obs)
    return [(torch.full((len(legal),), action), bool(legal[:, action].all())) for action in range(legal.shape[1])]


def greedy(env: PointFamily, state: GamesState, step: Step) -> Tensor:
    """What leads to the largest coordinate at once."""
    legal = legal_in(env, step.obs)
    coordinates = torch.arange(env.spec.num_actions)
    tried = []
    for axis in coordinates:
        action = torch.where(legal[:, axis], axis, legal.long().argmax(1))
        tried.append(env.points_of(env.step(state, action)[1].final_obs).amax((1, 2)).where(legal[:, axis], -1))
    return torch.stack(tried, 1).argmax(1)


def test_coordinates_do_grow() -> None:
    """As host and agent together want them to."""
    cloud = {"max_num_points": 5, "max_value": 9}
    config = point_config(
        role="agent", opponents=["all_coordinates"], dimensions=[4], clouds=[cloud], max_episode_steps=20
    )
    env = PointFamily(config)
    state, step = env.reset(env.all_tasks().expand(100, 3), stream_seeds(0, 100))
    largest = 0
    for _ in range(40):
        state, step = env.step(state, greedy(env, state, step))
        largest = max(largest, int(env.points_of(step.final_obs).max()))
    assert 10 * 9 < largest <= largest_coordinate(config) == 9 * 4 * 2**20
