"""Evaluations of source agents while they train, and their registration."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from icrl.app.root import Config, rule
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.trained import streams_and_episodes
from icrl.runs.checkpoint import Interval
from icrl.runs.device import device_of
from icrl.runs.evaluations import EVALUATIONS, SOURCE_EVALUATIONS, Evaluation
from icrl.runs.run_state import RunState
from icrl.sources.collect import Learner, SampledOrGreedy, make_learners
from icrl.sources.options import due_steps


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
            policy = SampledOrGreedy(learner, config.evals.sample_probability)
            played, _ = play_episodes(policy, env, tasks, config.source.num_learners * streams, episodes, config.seed)
        means = {"return": played.returns, "success": played.success, "episode_length": played.lengths}
        metrics = {name: float(values.mean()) for name, values in means.items()}
        return Evaluation(metrics, metrics["return"])


@contextmanager
def evaluating(
    config: Config, train_tasks: list[int], run: RunState, learner: Learner, check: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Evaluations of the agents over env steps per learner (see `due_steps`), from step 0, after a `check`. Call the
    yielded function after every iteration; the end of the block waits for all results."""
    source, evals, start = config.source, config.evals, config.source.pretraining
    interval = Interval(evals.num_evals, evals.eval_interval, run.total - start, end=True)

    def env_steps() -> int:
        return due_steps(source, run.done) * source.num_envs

    done = env_steps() if run.done >= max(start, 1) else -1
    place = (run.folder, "evaluation", SourceEvaluator(config, train_tasks), evals, done, run.description)
    trained = 0 if start else 1  # a pretrained agent may be the best
    with EVALUATIONS[-1](*place, config.summaries, trained) as evaluations:

        def start_if_due() -> None:
            if run.done == start or interval.due(run.done - start):
                check()
                evaluations.start(env_steps(), {"learner": learner.state_dict()})
            evaluations.poll()

        start_if_due()
        yield start_if_due
        run.finish(evaluations.wait)


@rule
def conflicts(config: Config) -> Iterator[str]:
    """Conflicts of evaluations with the source."""
    if config.source.in_context and config.source.evaluate:
        acts = "starts agents without their past, but $source.name acts on its past alone"
        yield f"$source.evaluate {acts}: give source.evaluate=false"


SOURCE_EVALUATIONS.append(evaluating)
