"""Stage four: evaluate the frozen model in context on unseen tasks.

python -m src.evaluate [KEY=VALUE ...]      logs/<run>/<policy.model>/ -> logs/<name>/evaluation.../, videos/<name>/

If options of the world differ from the training, such as `env.size=13`, all tasks without training are held out:
logs/<name>/evaluation-size=13/, videos/<name>/in_context-size=13/. Folders of other policies are named in the same way:
`policy.model=finetuned` plays a fine-tuned model. `evaluation.checkpoint=500` plays the snapshot or
other checkpoint of update 500, also of a training that is not finished: logs/<name>/evaluation-update=500/.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from icrl.app.root import Config
from icrl.contracts import Json
from icrl.envs.core import check_playable
from icrl.evaluation import tables
from icrl.evaluation.diagnostics import filming
from icrl.evaluation.protocol import PARTS, ResultSoFar, summarise
from icrl.evaluation.report import RESULTS, save_episodes
from icrl.evaluation.setup import Setup, jobs_of, open_setup, played_in, setting_of
from icrl.plots.figures import write_figures
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, write_owned
from icrl.runs.metrics import check_writers
from icrl.runs.processes import in_parallel

LARGE = "evaluation.num_streams, evaluation.num_probe_streams, evaluation.num_bootstrap"


def main(config: Config) -> Path:
    """Evaluate, or print the results of an earlier evaluation; returns the folder with `results.json`."""
    check_playable(config.env)
    check_writers(config.summaries)
    with open_setup(config, prepare(config)) as setup:
        if not setup.is_done:
            for films in filming():
                films.tell(config, setup.env)
        with only_writer(setup.folder):  # not before it is clear that there will be results
            results = setup.read_results()
            if results is None:
                played = in_parallel(jobs_of(setup), setup.width, "evaluate", ResultSoFar(setup.main))
                results = write_results(setup, played)
        told = [tables.in_short(results), *tables.tables(results), tables.summary(results, setup.env.spec)]
        print("\n\n".join([*told, _guide(setup)]))
    return setup.folder


def write_results(setup: Setup, played_jobs: Sequence[tuple[str, Any]]) -> Json:
    """Write episodes, numbers, videos and pictures of all `played_jobs`; returns the content of `results.json`."""
    config, env, options = setup.config, setup.env, setup.config.evaluation
    played = played_in(setup, played_jobs)
    checksum = save_episodes(setup.folder, played.episodes, setup.owner, played.arrays)
    setting = setting_of(setup)
    summed = partial(summarise, {config.seed: played.episodes}, setting, options, config.seed, [played.arrays])
    jobs: list[tuple[str, Any]] = [("numbers", summed)]
    if options.videos:
        jobs += [("videos", films.lives(setup, played, setting.references[setup.main])) for films in filming()]
    done = dict[str, Any](in_parallel(jobs, min(setup.width, len(jobs)), "sum up"))
    results = {
        "config": config.model_dump(),
        "episodes": checksum,
        **{f"{part}_tasks": tasks.tolist() for part, tasks in setup.tasks.items()},
        "references": setting.references,
        **done["numbers"],
        "checkpoint": setup.opened.checksum,
    }
    write_figures(setup.folder, env, results, setup.learners, config.summaries)
    write_owned(setup.folder / RESULTS, setup.owner, setup.opened.step, results)
    return results


def _guide(setup: Setup) -> str:
    """Lines that name the results, with what to look for in the first picture and in the videos."""
    config, folder = setup.config, setup.folder
    lines = [
        f"look first    {folder / 'adaptation.png'}",
        f"              The weights are frozen: if '{PARTS[setup.main]}' rises, the model learns in its",
        "              context, from near 'random' towards the other dashed lines, which are references.",
    ]
    if (probes := folder / "probes.png").exists():
        lines += [f"              {probes.name} beside it: with a blanked or wiped context the curve should stay low."]
    for films in filming():
        lines += films.guide(setup)
    lines += [f"all numbers   {folder / RESULTS}"]
    lines += [f"all videos    {config.folder('videos')}"] if config.folder("videos").exists() else []
    return "\n".join([*lines, f"all curves    {config.summaries.shown(config.folder('logs'))}"])
