"""Stage one: train source agents on every training task and record their learning histories.

python -m src.train_agents [KEY=VALUE ...]      -> histories/<name>/, logs/<name>/source/, videos/<name>/source/
"""

from contextlib import closing
from pathlib import Path

from icrl.app.root import Config
from icrl.contracts import Json
from icrl.envs import make_env
from icrl.evaluation.tables import solved
from icrl.recording.record import examined, record_part

LARGE = "source.num_learners, source.num_envs, source.unroll_length"
_NAMED = 10  # unsolved tasks that are printed


def main(config: Config) -> Path:
    """Train and record, or resume, or print the results; returns the folder with the histories."""
    record(config)
    print_results(config, examined(config))
    return config.folder("histories")


def record(config: Config) -> None:
    """Train and record, or resume, until the histories are complete, after those of the run that must come before."""
    record_before(config)
    record_part(config)


def record_before(config: Config) -> None:
    """Train and record the run that must come before, if there is one (`SourceConfig.run_before`)."""
    if before := config.source.run_before(config):
        main(before)


def print_results(config: Config, results: Json) -> None:
    """Print which tasks were solved, or the return if there was no success, and the folders of the results."""
    num_tasks, unsolved = results["num_tasks"], results["unsolved"] if "return" not in results else list[Json]()
    if "return" in results:
        print(f"mean return of the trained agents on {num_tasks} training tasks {results['return']:.4g}, no success")
    else:
        with closing(make_env(config.env)) as env:
            print(f"{num_tasks - len(unsolved)} of {num_tasks} training tasks {solved(env.spec)} by all their agents")
    for task in unsolved[:_NAMED]:
        each = sorted(task["success"])
        least = f"{each[:_NAMED]}" + (f" and of {len(each) - _NAMED} better ones" if len(each) > _NAMED else "")
        print(f"  not solved: {task['task']}, success of its agents {least}")
    if len(unsolved) > _NAMED:
        print(f"  ... and {len(unsolved) - _NAMED} more")
    print(f"histories  {config.folder('histories')}")
    if (videos := config.folder("videos") / "source").exists():
        print(f"videos     {videos}")
    print(f"curves     {config.summaries.shown(config.folder('logs'))}")
