"""Options that are fine alone and not together."""

import re
from functools import cache

import pytest
from icrl.config.offline_conflicts import of_critic, of_decoder, of_encoder, of_extraction
from icrl.config.source_conflicts import of_mini_batches, of_pace, of_replay
from icrl.config.training_conflicts import of_device, of_optimizer, of_trainer
from omegaconf import OmegaConf

from icrl.config.compose import load_config
from icrl.config.env_schema import ENVS
from icrl.config.root import Config
from icrl.config.rules import (
    _of_data,
    _of_evaluation,
    _of_model,
    _of_services,
    _of_source,
    check_conflicts,
)
from icrl.config.training_schema import SOURCES
from icrl.contracts import ConfigError
from icrl.runs.device import recorded

# All that the conflicts below are about, so that other defaults do not change them.
PLAIN_OPTIONS = (
    *("env.size=9", "env.max_episode_steps=20", "tasks.num_train=57"),
    *("source.num_learners=10", "source.num_envs=10", "source.unroll_length=10", "source.num_iterations=0"),
    *("source.num_env_steps=30000", "source.history_steps=30000", "source.videos_per_task=1"),
    *("source.mini_batch_length=0", "source.mini_batch_size=0"),
    *("data.history_len=0", "data.kept_steps=0", "data.num_development_tasks=6"),
    *("model.embed_dim=64", "model.num_heads=4", "model.context_len=160", "model.max_size=17"),
    *("model.position=learned", "model.add_env_time=true", "model.obs_encoding=coordinates"),
    *("optimizer=adamw", "optimizer.weight_decay=0.01", "trainer.mini_batch_size=32"),
    *("evals.num_evals=8", "evals.num_eval_episodes=256", "evals.num_eval_environments=16"),
    *("checkpoints.num_checkpoints=10", "summaries.num_summaries=100"),
    *("evaluation.num_episodes=40", "evaluation.checkpoint=best"),
    *("search.goal_row=0", "search.goal_column=0", "search.num_env_steps=20000"),
    *("encoder=model", "decoder=double", "critic=ilql", "critic.imitation_scaling=0", "awr=awr"),
    *("awr.inverse_temperature=10", "policy.model=gpt", "policy.advantage_scale=0"),
)
PLAIN = load_config(PLAIN_OPTIONS)
Q = "source.name=q_learning"  # an off-policy source: what is refused to a2c fits it
SAMPLED = f"{Q} source.clear_replay_buffer=false source.whole_replay_buffer_training=false source.mini_batch_size=32"
OTHERS = f"{Q} source.offline_buffer_dir=others source.mini_batch_length=1 source.mini_batch_size=10"
SILENT = "summaries.num_summaries=0"
SGD = "optimizer.name=sgd optimizer.beta1=0 optimizer.beta2=0 optimizer.weight_decay=0"

CQL = "critic.backup=max critic.v_loss_scaling=0 critic.expectile=0.5"

CONFLICTS = {  # what is set -> the fields the message must name
    "source.num_env_steps=30050": ["source.num_env_steps=30050", "source.num_envs", "source.unroll_length", "30100"],
    "source.num_env_steps=0": ["source.num_env_steps=0", "source.num_iterations=0"],
    "source.num_iterations=299": ["source.num_iterations=299", "source.num_env_steps=30000", "source.unroll_length=10"],
    "source.num_iterations=301": ["source.num_iterations=301", "source.num_env_steps=30000", "source.num_envs=10"],
    "source.unroll_length=2.5": ["source.unroll_length=2.5", "source.name=a2c"],
    "source.async_unroll=true": ["source.async_unroll=true", "source.name=a2c"],
    "source.name=ppo source.unroll_length=2.5": ["source.unroll_length=2.5", "source.name=ppo", "on-policy"],
    "source.name=ppo source.async_unroll=true": ["source.async_unroll=true", "source.name=ppo", "on-policy"],
    "source.name=random source.async_unroll=true": ["source.async_unroll=True", "source.name=random"],
    "source.name=noise_distillation source.teacher=them source.max_performance=0.5": [
        "source.max_performance=0.5",
        "source.teacher=them",
    ],
    "source.name=searcher source.noise=0.1 source.evaluate=true": ["source.evaluate=true", "source.name=searcher"],
    "source.name=searcher source.noise=0.1 summaries.action_distributions=true": [
        "summaries.action_distributions=true",
        "source.name=searcher",
    ],
    "source.name=searcher source.noise=0.1 summaries.outputs=true": ["summaries.outputs=true", "source.name=searcher"],
    "evaluation.temperatures=[0,1e-9]": ["evaluation.temperatures=[0.0, 1e-09]"],
    "data.keep_every=[]": ["data.keep_every=[]"],
    "data.keep_every=[2,1,2]": ["data.keep_every=[2, 1, 2]", "twice"],
    "evaluation.temperatures=[0,1,1]": ["evaluation.temperatures=[0.0, 1.0, 1.0]", "twice"],
    "data.kept_steps=159": ["data.kept_steps=159", "model.context_len=160"],
    "source.name=optimal source.async_unroll=true": ["source.async_unroll=True", "source.name=optimal"],
    **{
        f"source.name=noise_distillation source.{option}": [
            f"source.{option}",
            "source.name=noise_distillation",
            "learns nothing",
        ]
        for option in (
            "initial_collect_steps=1",
            "num_updates_per_train_iter=2",
            "mini_batch_length=1",
            "mini_batch_size=1",
        )
    },
    f"{OTHERS} source.offline_buffer_range=last": [
        "source.offline_buffer_range=last",
        "source.offline_buffer_length=0",
    ],
    f"{OTHERS} source.num_iterations=5 source.num_env_steps=0 source.rl_train_after_update_steps=5": [
        "source.num_iterations=5",
        "source.rl_train_after_update_steps=5",
    ],
    f"{SAMPLED} source.initial_collect_steps=10001": [
        "source.initial_collect_steps=10001",
        "source.replay_buffer_length=1000",
        "source.num_envs=10",
    ],
    f"{SAMPLED} source.mini_batch_length=1001": ["source.mini_batch_length=1001", "source.replay_buffer_length=1000"],
    f"{SAMPLED} source.replay_buffer_length=9000 source.mini_batch_length=3001": [
        "source.mini_batch_length=3001",
        "source.replay_buffer_length=9000",
        "3000 env steps",
    ],
    f"{SAMPLED} source.mini_batch_size=0": [
        "source.mini_batch_size=0",
        "source.whole_replay_buffer_training=false",
    ],
    f"{OTHERS} source.mini_batch_size=0": ["source.mini_batch_size=0", "source.offline_buffer_dir=others"],
    f"{OTHERS} source.mini_batch_length=0": [
        "source.mini_batch_length=0",
        "source.clear_replay_buffer=true",
        "source.offline_buffer_dir=others",
    ],
    f"{Q} source.priority_replay=true": ["source.whole_replay_buffer_training=true", "source.priority_replay=true"],
    f"{Q} source.mini_batch_size=5 source.whole_replay_buffer_training=false": [
        "source.clear_replay_buffer=true",
        "source.whole_replay_buffer_training=true",
    ],
    **{
        f"{Q} source.{option}": [f"source.{option}", "source.offline_buffer_dir=none"]
        for option in (
            "offline_buffer_length=100",
            "offline_buffer_range=last",
            "offline_buffer_every=2",
            "offline_loss_weight=2",
            "rl_train_after_update_steps=1",
            "rl_train_every_update_steps=2",
        )
    },
    f"{Q} source.unroll_step_interval=0.1": ["source.unroll_step_interval=0.1", "source.async_unroll"],
    "source.num_workers=2": ["source.num_workers=2", "source.vectorization=process"],
    "source.initial_collect_steps=30000": ["source.initial_collect_steps=30000", "source.num_env_steps is 30000"],
    "source.mini_batch_length=3": ["source.mini_batch_length=3", "source.unroll_length=10"],
    f"{Q} source.unroll_length=2.5 source.mini_batch_length=2": ["source.mini_batch_length=2", "source.unroll_length"],
    "source.mini_batch_size=3": ["source.mini_batch_size=3", "source.num_envs=10", "source.mini_batch_length=0"],
    "source.history_steps=30100": ["source.history_steps=30100", "source.num_env_steps=30000"],
    "source.history_steps=29955": ["source.history_steps=29955", "source.num_envs=10"],
    "source.videos_per_task=11": ["source.videos_per_task=11", "source.num_learners=10"],
    "search.goal_row=9": ["search.goal_row=9", "env.size=9"],
    "search.goal_column=9": ["search.goal_column=9", "env.size=9"],
    "model.num_heads=5": ["model.num_heads=5", "model.embed_dim=64"],
    "model.position=rope model.num_heads=64": ["model.position=rope", "model.embed_dim", "model.num_heads"],
    "model.position=env_time model.add_env_time=false": ["model.position=env_time", "model.add_env_time=false"],
    "model.max_size=8": ["model.max_size=8", "env.size=9", "model.obs_encoding=coordinates"],
    "histories=[]": ["histories=[]"],
    "histories=[a,b,a]": ["histories=['a', 'b', 'a']", "differ"],
    "data.weights=[1,2]": ["data.weights=[1.0, 2.0]", "histories=['dark_room-a2c']"],
    "histories=[a,b] data.weights=[1]": ["data.weights=[1.0]", "histories=['a', 'b']"],
    "data.history_len=30001": ["data.history_len=30001", "source.history_steps=30000"],
    "model.context_len=3001": ["model.context_len=3001", "source.history_steps=30000", "source.num_envs=10"],
    "data.history_len=1590": ["model.context_len=160", "data.history_len=1590", "source.num_envs=10"],
    "tasks.num_train=1 data.num_development_tasks=0": ["tasks.num_train=1", "at least 2"],
    "tasks.num_train=0": ["tasks.num_train=0", "tasks.num_held_out=0", "tasks.split=random"],
    "tasks.split=list": ["tasks.split=list", "tasks.held_out", "[]"],
    "tasks.held_out=[3]": ["tasks.held_out=[3]", "tasks.split=list", "tasks.split=random"],
    "tasks.split=list tasks.held_out=[3,1,3]": ["tasks.held_out=[3, 1, 3]", "twice"],
    "data.num_development_tasks=0": ["trainer.evaluate=true", "data.num_development_tasks=0", "trainer.evaluate=false"],
    "data.num_development_tasks=0 trainer.evaluate=false evaluation.checkpoint=last evaluation.tasks=development": [
        "evaluation.tasks=development",
        "data.num_development_tasks",
    ],
    "data.num_development_tasks=57": ["data.num_development_tasks=57", "tasks.num_train=57"],
    "optimizer.name=adam": ["optimizer.weight_decay=0.01", "optimizer.name=adam"],
    "optimizer.name=radam": ["optimizer.weight_decay=0.01", "optimizer.name=radam", "optimizer.weight_decay=0.0,"],
    "optimizer.momentum=0.9": ["optimizer.momentum=0.9", "optimizer.name=adamw", "optimizer.momentum=0.0"],
    "optimizer.beta3=0.9": ["optimizer.beta3=0.9", "optimizer.name=adamw"],
    "optimizer.name=lamb optimizer.beta3=0.9": ["optimizer.beta3=0.9", "optimizer.name=lamb"],
    f"{SGD} optimizer.beta1=0.9": ["optimizer.beta1=0.9", "optimizer.name=sgd"],
    f"{SGD} optimizer.beta2=0.9": ["optimizer.beta2=0.9", "optimizer.name=sgd"],
    f"{SGD} optimizer.epsilon=1e-6": ["optimizer.epsilon=1e-06", "optimizer.name=sgd", "optimizer.epsilon=1e-08"],
    f"{SGD} optimizer.weight_decay=0.1": ["optimizer.weight_decay=0.1", "optimizer.name=sgd"],
    "optimizer.name=mtadam device.amp_dtype=float16": ["optimizer.name=mtadam", "device.amp_dtype=float16"],
    "trainer.evaluate=false": ["trainer.evaluate=false", "evaluation.checkpoint=last"],
    "trainer.mini_batch_length=161": ["trainer.mini_batch_length=161", "model.context_len=160"],
    "trainer.mini_batch_length=159": ["trainer.mini_batch_length=159", "model.position=learned", "context_len=160"],
    "trainer.gradient_accumulation_steps=5": ["trainer.gradient_accumulation_steps=5", "trainer.mini_batch_size=32"],
    "device.dtype=float64 device.amp_dtype=bfloat16": ["device.amp_dtype=bfloat16", "device.dtype=float32", "float64"],
    "device.type=tpu": ["device.type=tpu", "auto, cpu, cuda or cuda:N"],
    "device.type=cuda-1": ["device.type=cuda-1"],
    "device.type=cpu:0": ["device.type=cpu:0"],
    "trainer.empty_cache=true device.type=cpu": ["trainer.empty_cache=true", "device.type=cpu"],
    "evals.eval_interval=5": ["evals.num_evals=8", "evals.eval_interval=5"],
    "checkpoints.checkpoint_interval=5": ["checkpoints.num_checkpoints=10", "checkpoints.checkpoint_interval=5"],
    "summaries.summary_interval=5": ["summaries.num_summaries=100", "summaries.summary_interval=5"],
    f"{SILENT} summaries.summarize_first_interval=true": ["summaries.summarize_first_interval=True", SILENT],
    f"{SILENT} summaries.grads_and_vars=true": ["summaries.grads_and_vars=True", SILENT],
    f"{SILENT} summaries.gradient_noise_scale=paper": ["summaries.gradient_noise_scale=paper", SILENT],
    f"{SILENT} summaries.action_distributions=true": ["summaries.action_distributions=True", SILENT],
    f"{SILENT} summaries.outputs=true": ["summaries.outputs=True", SILENT],
    f"{SILENT} summaries.debug=true": ["summaries.debug=True", SILENT, "summaries.summary_interval=0"],
    "evals.num_eval_environments=257": ["evals.num_eval_environments=257", "evals.num_eval_episodes=256"],
    "summaries.gradient_noise_scale=alternative trainer.mini_batch_size=1": [
        "summaries.gradient_noise_scale=alternative",
        "trainer.mini_batch_size=1",
    ],
    "evaluation.num_episodes=150": ["evaluation.num_episodes=150", "source.history_steps=30000"],
    "critic.v_loss_scaling=0": ["critic.v_loss_scaling=0", "critic.backup=expectile"],
    "critic.backup=max": ["critic.v_loss_scaling=1.0", "critic.backup=max"],
    "critic.backup=max critic.v_loss_scaling=0": ["critic.expectile=0.8", "critic.backup=max", "must be 0.5"],
    f"{CQL} critic.separate_value=true": ["critic.separate_value=true", "critic.backup=max"],
    "critic.discount_per=episode critic.horizon=episode": ["critic.discount_per=episode", "critic.horizon=episode"],
    "critic.value_trunk_grad=none": ["critic.value_trunk_grad=none", "critic.imitation_scaling=0", "encoder.load_from"],
    **{
        f"critic.{option} {other}": [f"critic.{option}", other]
        for option in ("initial_model=a.pt", "initial_model_prefix=runs")
        for other in ("encoder.load_from=b.pt", "decoder.load_from=c.pt")
    },
    "critic.initial_model=a.pt critic.initial_model_prefix=runs": [
        "critic.initial_model=a.pt",
        "critic.initial_model_prefix=runs",
    ],
    "critic.initial_model_index=0": ["critic.initial_model_index=0", "critic.initial_model_prefix"],
    "optimizer.initialize=true": ["optimizer.initialize=true", "critic.initial_model_prefix"],
    "decoder.num_layers=1": ["decoder.ff_dim=256", "decoder.num_layers=1"],
    "decoder.num_layers=1 decoder.ff_dim=0 decoder.dropout=0.1": [
        "decoder.dropout=0.1",
        "decoder.num_layers=1",
    ],
    "decoder.ff_dim=0": ["decoder.ff_dim=0", "decoder.num_layers=2"],
    "encoder.num_heads=3": ["encoder.num_heads=3", "encoder.embed_dim=64"],
    "encoder.position=rope encoder.num_heads=64": [
        "encoder.position=rope",
        "encoder.embed_dim / encoder.num_heads",
        "64 / 64",
    ],
    "encoder.position=env_time model.add_env_time=false": [
        "encoder.position=env_time",
        "model.add_env_time=false",
    ],
    "trainer.mini_batch_length=159 model.position=none": [
        "trainer.mini_batch_length=159",
        "encoder.position=learned",
        "model.context_len=160",
    ],
    "awr.temperature=0.1": ["awr.temperature=0.1", "awr.inverse_temperature=10"],
    "awr.inverse_temperature=null": ["awr.temperature=null", "awr.inverse_temperature=null"],
    **{
        f"awr.experiment_name={name}": [f"awr.experiment_name={name}"]
        for name in (
            *("gpt", "ilql", "critic", "source", "search", "evals", "in_context"),
            *("evaluation", "evaluation-size=13"),
        )
    },
    **{
        f"awr.normalize={normalize} trainer.gradient_accumulation_steps=2": [
            f"awr.normalize={normalize}",
            "trainer.gradient_accumulation_steps=2",
        ]
        for normalize in ("mean", "softmax")
    },
    "policy.model=other": ["policy.model=other", "gpt, critic", "awr.experiment_name=awr"],
    "policy.model=critic": ["policy.model=critic", "policy.advantage_scale=0"],
}
NEIGHBOURS = [  # as near as can be, and fine
    "source.num_env_steps=30100",
    "source.num_iterations=300",
    "source.num_iterations=300 source.num_env_steps=0",
    f"{Q} source.unroll_length=2.5",
    f"{Q} source.async_unroll=true source.unroll_step_interval=0.1",
    "source.vectorization=process source.num_workers=2",
    "source.initial_collect_steps=29999",
    "source.name=ppo",
    f"{Q} source.initial_collect_steps=29999",
    f"{SAMPLED} source.initial_collect_steps=10000",
    f"{SAMPLED} source.mini_batch_length=1000",
    f"{SAMPLED} source.replay_buffer_length=9000 source.mini_batch_length=3000",
    f"{SAMPLED} source.mini_batch_length=3 source.priority_replay=true",
    f"{SAMPLED} source.mini_batch_size=0 source.whole_replay_buffer_training=true",
    f"{SAMPLED} source.offline_buffer_dir=others",
    f"{OTHERS} source.num_iterations=305 source.rl_train_after_update_steps=5 source.rl_train_every_update_steps=2",
    f"{OTHERS} source.num_iterations=6 source.num_env_steps=600 source.rl_train_after_update_steps=5 "
    "source.unroll_length=60 source.history_steps=600 evaluation.num_episodes=2 model.context_len=2",
    "source.name=random",
    f"{OTHERS} source.offline_buffer_range=first",
    f"{OTHERS} source.offline_buffer_length=100 source.offline_buffer_range=last source.offline_buffer_every=2 "
    "source.offline_loss_weight=2",
    "source.mini_batch_length=5 source.mini_batch_size=4",
    f"{Q} source.unroll_length=2.5 source.mini_batch_length=1 source.mini_batch_size=5",
    "source.history_steps=29950",
    "source.videos_per_task=10",
    "search.goal_row=8 search.goal_column=8",
    "model.num_heads=64",
    "model.position=rope model.num_heads=32",
    "model.position=none model.add_env_time=false",
    "model.max_size=9",
    "model.max_size=8 model.obs_encoding=cell",
    "histories=[a,b]",
    "histories=[a,b] data.weights=[1,2]",
    "data.weights=[1]",
    "histories=[a,b] data.history_len=30001",  # they may be of other sources, with longer lives
    "histories=[a,b] model.context_len=3001",
    "histories=[a,b] evaluation.num_episodes=150",
    "data.history_len=30000",
    "model.context_len=3000",
    "data.history_len=1600",
    "data.num_development_tasks=56",
    "data.num_development_tasks=0 trainer.evaluate=false evaluation.checkpoint=last",
    "tasks.num_train=0 tasks.num_held_out=3",
    "tasks.num_train=0 tasks.split=ring",
    "tasks.split=list tasks.held_out=[3,1]",
    "evaluation.tasks=development",
    "optimizer.name=adam optimizer.weight_decay=0",
    "trainer.evaluate=false evaluation.checkpoint=last",
    "trainer.mini_batch_length=160",
    "trainer.mini_batch_length=159 model.position=env_time encoder.position=sinusoidal",
    "trainer.gradient_accumulation_steps=4",
    f"{SGD} optimizer.momentum=0.9",
    "optimizer.name=radam optimizer.weight_decay=0",
    "optimizer.name=lamb",
    "optimizer.name=mtadam optimizer.beta3=0.9",
    "optimizer.name=mtadam device.amp_dtype=bfloat16",
    "device.amp_dtype=float16",
    "device.type=cpu device.amp_dtype=float16",
    "device.dtype=float64",
    "device.type=cuda:12",
    "trainer.empty_cache=true",
    "evals.num_evals=0 evals.eval_interval=5",
    "checkpoints.num_checkpoints=0 checkpoints.checkpoint_interval=5",
    f"{SILENT} summaries.summary_interval=5 summaries.grads_and_vars=true",
    f"{SILENT}",
    "checkpoints.num_checkpoints=0",
    "evals.num_evals=0",
    "evals.num_eval_environments=256",
    "summaries.gradient_noise_scale=alternative trainer.mini_batch_size=2",
    "evaluation.num_episodes=149",
    CQL,
    "critic.discount_per=episode critic.horizon=across_episodes",
    "decoder.num_layers=1 decoder.ff_dim=0 decoder.dropout=0",
    "awr.normalize=softmax",
    "awr.normalize=none trainer.gradient_accumulation_steps=2",
    *(
        f"critic.value_trunk_grad=none {trained}"
        for trained in (
            "critic.imitation_scaling=0.1",
            "encoder.load_from=a.pt",
            "critic.initial_model=a.pt",
            "critic.initial_model_prefix=runs",
        )
    ),
    "encoder.load_from=a.pt decoder.load_from=a.pt",
    "critic.initial_model_prefix=runs critic.initial_model_index=0",
    "critic.initial_model_prefix=runs optimizer.initialize=true",
    "encoder.num_heads=64",
    "encoder.position=rope encoder.num_heads=32",
    "awr.temperature=0.1 awr.inverse_temperature=null",
    "awr.inverse_temperature=0",
    "awr.experiment_name=gpt2 policy.model=gpt2",
    "awr.experiment_name=an_evaluation",
    "policy.model=critic policy.advantage_scale=0.1",
    "policy.advantage_scale=1",
]


@cache
def plain_of(source: str) -> Config:
    """With the options of that source."""
    return load_config([*PLAIN_OPTIONS, f"source={source}"])


def changed(*overrides: str) -> Config:
    """The configuration with some options set, unchecked."""
    source = OmegaConf.from_dotlist(list(overrides)).get("source", {}).get("name", "a2c")
    schema = OmegaConf.structured(Config)
    schema.env, schema.source = OmegaConf.structured(ENVS[PLAIN.env.name]), OmegaConf.structured(SOURCES[source])
    config = OmegaConf.merge(schema, recorded(plain_of(source)), OmegaConf.from_dotlist(list(overrides)))
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


def test_squares_of_any_world_fit_the_tables_of_coordinates() -> None:
    lake = ["env=gymnasium", "model.max_size=17", "model.obs_encoding=coordinates"]
    with pytest.raises(ConfigError, match=r"model\.max_size=17 must be at least env\.width=18 "):
        load_config([*lake, "env.width=18"])
    load_config([*lake, "env.width=17"])
    load_config([*lake, "env.width=18", "model.obs_encoding=cell"])
    load_config(["env=bandit", "model.max_size=2", "model.obs_encoding=coordinates"])  # no square at all


@pytest.mark.parametrize("option", ["learning_rate", "weight_decay", "max_gradient_norm"])
def test_the_optimizer_counts_no_env_steps(option: str) -> None:
    """Of the run, its iterations and its updates it does."""
    schedule = "{{kind: linear, progress: {}, points: [[0, 0.1], [1, 0.2]]}}"
    with pytest.raises(ConfigError, match=rf"optimizer\.{option}=.*trainer\.num_iterations"):
        load_config([f"optimizer.{option}={schedule.format('env_steps')}"])
    for progress in ("percent", "iterations", "updates"):
        load_config([f"optimizer.{option}={schedule.format(progress)}"])


def test_conflicts_are_checked_by_load_config_and_all_of_them_here() -> None:
    with pytest.raises(ConfigError, match="model.num_heads=5 must divide model.embed_dim=64"):
        load_config(["model.num_heads=5"])
    found: set[str] = set()
    paths = ("encoder.load_from=a", "decoder.load_from=b", "critic.initial_model=c", "critic.initial_model_prefix=d")
    plain = [changed(*paths), *(plain_of(source) for source in ("a2c", "q_learning", "random"))]
    there = {code for config in plain for _, code in all_of(config)}
    for overrides in CONFLICTS:
        found |= {code for broken, code in all_of(changed(*overrides.split())) if broken}
    for option in ("learning_rate", "weight_decay", "max_gradient_norm"):
        schedule = {"kind": "linear", "progress": "env_steps", "points": [[0, 0.1], [1, 0.2]]}
        config = changed()
        setattr(config.optimizer, option, schedule)
        found |= {code for broken, code in all_of(config) if broken}
    never = len(vars(PLAIN.optimizer)) - 3  # options of the optimizer that are no rates
    assert len(there | {"of_pace of nothing"}) == len(found) + never


def all_of(config: Config) -> list[tuple[bool, str]]:
    """Every conflict of a configuration by its number, or where there are as many as options that are set, by what it
    says without their values; without any budget the others of pace make no sense."""
    found = [(broken, re.sub(r"=\S+", "", message)) for broken, message in of_critic(config)]
    for of in (
        of_pace,
        of_mini_batches,
        of_replay,
        _of_source,
        _of_data,
        _of_model,
        of_optimizer,
        of_trainer,
        of_device,
        _of_services,
        _of_evaluation,
        of_encoder,
        of_decoder,
        of_extraction,
    ):
        conflicts = of(config.device) if of is of_device else of(config)
        nothing = of is of_pace and len(conflicts) == 1
        found += [(b, f"{of.__name__} {'of nothing' if nothing else n}") for n, (b, _) in enumerate(conflicts)]
        if nothing:
            break
    return found
