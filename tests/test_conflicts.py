"""Options that are fine alone and not together."""

import pytest
from omegaconf import OmegaConf

from src.config import load_config
from src.conflicts import _of_evaluation, _of_model, _of_source, check_conflicts
from src.contracts import ConfigError
from src.runtime import recorded
from src.schema import Config

# All that the conflicts below are about, so that other defaults do not change them.
PLAIN = load_config(
    [
        *("env.size=9", "env.max_episode_steps=20", "tasks.num_train=57"),
        *("source.num_learners=10", "source.num_envs=10", "source.rollout_len=10", "source.checkpoint_interval=500"),
        *("source.num_env_steps=30000", "source.history_steps=30000", "source.videos_per_task=1"),
        *("data.history_len=0", "data.num_validation_tasks=6"),
        *("model.embed_dim=64", "model.num_heads=4", "model.context_len=160", "model.max_size=17"),
        *("model.position=learned", "model.add_env_time=true", "model.obs_encoding=coordinates"),
        *("optimizer=adamw", "optimizer.weight_decay=0.01"),
        *("optimizer.learning_rate=0.002", "optimizer.final_learning_rate=0.00002"),
        *("trainer.evaluation_steps=320", "evaluation.num_episodes=40"),
        *("search.goal_row=0", "search.goal_column=0", "search.num_env_steps=20000"),
    ]
)

CONFLICTS = {  # what is set -> the fields the message must name
    "source.num_env_steps=30050": ["source.num_env_steps=30050", "source.num_envs", "source.rollout_len"],
    "source.history_steps=30100": ["source.history_steps=30100", "source.num_env_steps=30000"],
    "source.history_steps=29950": ["source.history_steps=29950", "source.num_envs", "source.rollout_len"],
    "source.checkpoint_interval=505": ["source.checkpoint_interval=505", "source.rollout_len=10"],
    "source.videos_per_task=11": ["source.videos_per_task=11", "source.num_learners=10"],
    "search.goal_row=9": ["search.goal_row=9", "env.size=9"],
    "search.goal_column=9": ["search.goal_column=9", "env.size=9"],
    "search.num_env_steps=20010": ["search.num_env_steps=20010", "source.num_envs", "source.rollout_len"],
    "model.num_heads=5": ["model.num_heads=5", "model.embed_dim=64"],
    "model.position=rope model.num_heads=64": ["model.position=rope", "model.embed_dim", "model.num_heads"],
    "model.position=env_time model.add_env_time=false": ["model.position=env_time", "model.add_env_time=false"],
    "model.max_size=8": ["model.max_size=8", "env.size=9", "model.obs_encoding=coordinates"],
    "data.history_len=30001": ["data.history_len=30001", "source.history_steps=30000"],
    "model.context_len=3001": ["model.context_len=3001", "source.history_steps=30000", "source.num_envs=10"],
    "data.history_len=1590": ["model.context_len=160", "data.history_len=1590", "source.num_envs=10"],
    "data.num_validation_tasks=57": ["data.num_validation_tasks=57", "tasks.num_train=57"],
    "optimizer.name=adam": ["optimizer.weight_decay=0.01", "optimizer.name=adam"],
    "optimizer.final_learning_rate=1.0": ["optimizer.final_learning_rate=1.0", "optimizer.learning_rate=0.002"],
    "trainer.evaluation_steps=19": ["trainer.evaluation_steps=19", "env.max_episode_steps=20"],
    "evaluation.num_episodes=150": ["evaluation.num_episodes=150", "source.history_steps=30000"],
}
NEIGHBOURS = [  # as near as can be, and fine
    "source.num_env_steps=30100",
    "source.history_steps=29900",
    "source.checkpoint_interval=510",
    "source.videos_per_task=10",
    "search.goal_row=8 search.goal_column=8",
    "search.num_env_steps=20100",
    "model.num_heads=64",
    "model.position=rope model.num_heads=32",
    "model.position=none model.add_env_time=false",
    "model.max_size=9",
    "model.max_size=8 model.obs_encoding=cell",
    "data.history_len=30000",
    "model.context_len=3000",
    "data.history_len=1600",
    "data.num_validation_tasks=56",
    "optimizer.name=adam optimizer.weight_decay=0",
    "optimizer.final_learning_rate=0.002",
    "trainer.evaluation_steps=20",
    "evaluation.num_episodes=149",
]


def changed(*overrides: str) -> Config:
    """The configuration with some options set, unchecked."""
    config = OmegaConf.merge(OmegaConf.structured(Config), recorded(PLAIN), OmegaConf.from_dotlist(list(overrides)))
    return OmegaConf.to_object(config)


@pytest.mark.parametrize("overrides", CONFLICTS)
def test_a_conflict_names_all_fields_it_is_between(overrides: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_conflicts(changed(*overrides.split()))
    for field in CONFLICTS[overrides]:
        assert field in str(refused.value)


@pytest.mark.parametrize("overrides", NEIGHBOURS)
def test_what_only_nearly_conflicts_is_allowed(overrides: str) -> None:
    check_conflicts(changed(*overrides.split()))


def test_conflicts_are_checked_by_load_config_and_all_of_them_here() -> None:
    with pytest.raises(ConfigError, match="model.num_heads=5 must divide model.embed_dim=64"):
        load_config(["model.num_heads=5"])
    found = set()
    for overrides in CONFLICTS:
        config = changed(*overrides.split())
        of_all = [*_of_source(config), *_of_model(config), *_of_evaluation(config)]
        found |= {number for number, (broken, _) in enumerate(of_all) if broken}
    assert found == set(range(len(of_all)))
