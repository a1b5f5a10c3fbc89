"""Evaluators that run during training: the model in context, and source agents on fresh episodes."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icrl.collection.collect import EpsilonGreedy, make_learners
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes, summary_of
from icrl.evaluation.trained import PolicyLoader, plain_gpt
from icrl.nn.gpt_policy import GPTPolicy
from icrl.runs.device import device_of
from icrl.runs.evaluations import Evaluation
from icrl.sources.noise_distillation import NoiseDistillation

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.runs.evaluations import EvalsConfig


@dataclass
class InContextEvaluator:
    """Plays a checkpoint of stage two on the tasks with the numbers `development`, each stream from an empty context.
    The score is the reward per env step in later episodes."""

    config: Config
    development: list[int]
    load_policy: PolicyLoader = plain_gpt

    def __call__(self, state: dict[str, Any]) -> Evaluation:
        config, device = self.config, device_of(self.config)
        streams, episodes = streams_and_episodes(config.evals)
        with closing(make_env(config.env, device)) as env:
            model = self.load_policy(config, env.spec, state["model"], device)
            options = config.policy
            policy = GPTPolicy(model, config.evals.sample_probability, options.temperature, options.context_kept)
            tasks = env.all_tasks().to(device)[self.development]
            played, _ = play_episodes(policy, env, tasks, streams, episodes, config.seed)
        metrics = {f"development_{name}": value for name, value in summary_of(played).items()}
        return Evaluation(metrics, metrics["development_late_reward"])


@dataclass
class SourceEvaluator:
    """Plays all source agents of the tasks with the numbers `train` on fresh episodes. The score is the mean return."""

    config: Config
    train: list[int]

    def __call__(self, state: dict[str, Any]) -> Evaluation:
        config, device = self.config, device_of(self.config)
        streams, episodes = streams_and_episodes(config.evals)
        with closing(make_env(config.env, device)) as env:
            tasks = env.all_tasks()[self.train].to(device)
            learner, _, _ = make_learners(config, env, tasks, device)
            learner.load_state_dict(state["learner"])
            policy = EpsilonGreedy(learner, config.evals.sample_probability)
            played, _ = play_episodes(policy, env, tasks, config.source.num_learners * streams, episodes, config.seed)
        means = {"return": played.returns, "success": played.success, "episode_length": played.lengths}
        metrics = {name: float(values.mean()) for name, values in means.items()}
        return Evaluation(metrics, metrics["return"])


def check_streams(config: Config, learner: Any, num_tasks: int) -> None:
    """Raise `ConfigError` unless the evaluation streams of `learner` divide evenly among the learners of its teacher,
    and of the teacher's own teacher."""
    source, evals = config.source, config.evals
    while isinstance(learner, NoiseDistillation):
        learner = learner.expert
        per_task = getattr(learner, "num_learners", num_tasks) // num_tasks  # a planner has no learners: one per task
        if source.num_learners * evals.num_eval_environments % per_task:
            raise ConfigError(
                f"source.num_learners={source.num_learners} x evals.num_eval_environments="
                f"{evals.num_eval_environments} must be a multiple of the {per_task} learners per task of "
                f"source.teacher={getattr(source, 'teacher', 'none')}, with source.evaluate=true"
            )


def streams_and_episodes(options: EvalsConfig) -> tuple[int, int]:
    """Streams per task, and the number of first episodes of each that count: ceil(episodes / streams). (Counting the
    first episodes to end over all streams would favour short ones.)"""
    return options.num_eval_environments, math.ceil(options.num_eval_episodes / options.num_eval_environments)
