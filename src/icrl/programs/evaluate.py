"""Stage three: evaluate the frozen model in context on unseen tasks.

python -m src.evaluate [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/evaluation/, videos/<name>/

If options of the world differ from the training, such as `env.size=13`, all tasks without training are held out:
logs/<name>/evaluation-size=13/, videos/<name>/in_context-size=13/. Folders of other policies are named likewise:
`policy.model=<finetune.experiment_name>` plays a fine-tuned model. `evaluation.checkpoint=500` plays the snapshot or
other checkpoint of update 500, also of a training that is not finished: logs/<name>/evaluation-update=500/.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icrl.config.options import refuse, replace
from icrl.config.root import Config
from icrl.contracts import Batch, ConfigError, Env, Json, Policy, Rollout
from icrl.data.history_store import Histories
from icrl.envs import make_env
from icrl.envs.core import State, TensorEnv, check_playable
from icrl.envs.exact import Expectation
from icrl.envs.rooms import Room
from icrl.evaluation import exploration, in_context, measures, moved_goal, protocol, references, report, tables, trained
from icrl.evaluation.calibration import calibration, development_windows, target_of
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.report import RESULTS, read_results, save_episodes
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import Acting, GPTPolicy
from icrl.objectives.imitation import ObjectiveConfig
from icrl.plots.figures import write_figures
from icrl.plots.walks import compared_tasks, tell_not_filmed, write_lives
from icrl.runs.device import check_memory, prepare, recorded
from icrl.runs.files import Identity, check_owner, check_same, identity_of, only_writer, write_owned
from icrl.runs.metrics import check_writers
from icrl.runs.processes import in_parallel
from icrl.sources import source_of
from icrl.spaces import EnvSpec
from icrl.training.needs import bootstrap, playing
from icrl.training.program import unweighted

LARGE = "evaluation.num_streams, evaluation.num_train_streams, evaluation.num_bootstrap"

_WORLD = ("env", "tasks")
_STREAMS = 250  # that the model plays in one job: with fewer, a step costs about as much


def main(config: Config) -> Path:
    """Evaluate, or print the results of an earlier evaluation; returns the folder with `results.json`."""
    check_playable(config.env)
    check_writers(config.summaries)
    device = prepare(config)
    opened = trained.open_trained(config, device)
    before, is_mixture = opened.described["config"], len(config.histories) > 1
    changes = trained.changes_of(config, before)
    compared = opened.compared if is_mixture else (*opened.compared, "source")  # stores of a mixture record their own
    last = config.evaluation.checkpoint == "last"  # others may be older than the extension of a run
    check_same(config, before, compared if changes else (*_WORLD, *compared), str(opened.folder), budgets=last)
    suffix = trained.suffix_of(changes | opened.suffixes, config.evaluation.tasks)
    identifying = (*_WORLD, *compared, "seed", "policy", "evaluation")
    folder = config.folder("logs") / f"evaluation{suffix}"
    owner = identity_of("evaluate", config, identifying, {"model": opened.checksum})
    with closing(make_env(config.env, device)) as env:
        spec = trained.readable_spec(config, env.spec, opened.described["env"])
        model, start = opened.make(config, spec, device), trained.open_start(config, opened, spec, device)
        if changes:
            parts = {"held_out": trained.new_tasks(config, env, before, opened.described["tasks"])}
        else:
            parts = trained.tasks_by_part(config, opened.described["tasks"])
        away = "evaluation.calibration=true needs the histories of this world, and the model learned from another one's"
        refuse(changes and config.evaluation.calibration, away)
        store, path, sections = None, folder / RESULTS, dict[str, Any]()
        if not path.exists():
            tell_not_filmed(config, env)
            # In another world a source appears only in videos, and is the configured one unless there is a mixture.
            if not changes or (config.evaluation.videos and is_mixture):
                store = trained.training_store(config, opened.described)
                objective = config.objective if "objective" in opened.compared else unweighted(config.objective)
                sections = _calibration(config, objective, model, env.spec, opened.described["tasks"], store)
            check_room(config, model, env.spec, parts)
        with only_writer(folder):  # not before it is clear that there will be results
            if path.exists():
                results, found = read_results(folder)
                other = f"another name= with run={config.run} histories=[{','.join(config.histories)}]"
                check_same(config, results["config"], identifying, str(folder), budgets=False, other=other)
                if results["checkpoint"] != opened.checksum:
                    raise ConfigError(f"{folder} holds results of another model: give another name=, or remove it")
                check_owner(path, found, owner)
            else:
                tasks = {part: env.all_tasks().to(device)[numbers] for part, numbers in parts.items()}
                results = evaluate(config, env, model, start, tasks, store, suffix, owner, sections)
                write_owned(path, owner, opened.step, results | {"checkpoint": opened.checksum})
        told = [tables.in_short(results), *tables.tables(results), tables.summary(results, env.spec)]
        print("\n\n".join([*told, _guide(config, env, parts, folder, suffix)]))
    return folder


def evaluate(
    config: Config,
    env: TensorEnv,
    model: GPT | Acting,
    start: GPT | None,
    tasks: Mapping[str, Tensor],
    store: Histories | None,
    suffix: str,
    owner: Identity,
    sections: Json,
) -> dict[str, Any]:
    """Play `tasks` (by part, the main one first) and write episodes, plots and videos to folders with `suffix`; returns
    the content of `results.json`, with `sections`. `start` is the model before it was fine-tuned, which plays beside
    it. The source is that of `store`, or the configured one."""
    options, (main_part, shown), *further = config.evaluation, *tasks.items()
    learners = references.references_of(env) | (references.agents_of(config, shown) if store else {})
    policy, folder = trained.policy_of(config, model), config.folder("logs") / f"evaluation{suffix}"
    learners |= {protocol.BEFORE: trained.policy_of(config, start)} if start else {}
    width = torch.get_num_threads() if shown.is_cpu else 1
    probes = references.probes_for(config, model, env, shown)
    players = {name: (probe, shown, options.num_probe_streams) for name, probe in reversed(probes.items())}
    players |= {main_part: (policy, shown, options.num_streams)}  # after probes, because those take longest
    players |= {part: (policy, rows, options.num_train_streams) for part, rows in further}
    players |= {name: (learner, shown, options.num_streams) for name, learner in learners.items()}
    plays = [*_moved_plays(config, env, policy, learners, shown), *_plays(config, env, players)]
    searches = exploration.explorations(config, env, policy, learners, len(shown))
    found = in_parallel([*plays, *searches], width, "evaluate", protocol.ResultSoFar(main_part))
    played, explored = _results(found[: len(plays)]), exploration.by_kind(dict(found[len(plays) :]))
    episodes = {part: played[part][0] for part in tasks}
    source = source_of(store.manifest["config"], store.folder) if store else config.source
    if store and "train" in tasks:
        episodes |= _source_episodes(config, store, tasks["train"])
    moved = [name for name in played if name.startswith(protocol.MOVED)]
    episodes |= {name: played[name][0] for name in (*learners, *probes, *moved)}
    misled = moved_goal.others_first(env, shown, played)
    checksum = save_episodes(folder, episodes, owner, explored | {report.MISLED: misled})
    exact = {part: references.exact_references(env, rows) for part, rows in tasks.items()}
    setting = _setting(env, policy, exact)
    where, beside = config.folder("videos") / f"in_context{suffix}", _beside(exact[main_part], env, episodes)
    models = {"model": main_part} | ({protocol.BEFORE: protocol.BEFORE} if start else {})
    filmed = {name: played[part][1] for name, part in models.items()}
    film = (replace(config, source=source), where, env, shown, filmed, beside, shown.device)
    summarise = partial(protocol.summarise, {config.seed: episodes}, setting, options, config.seed, [misled])
    jobs: list[Callable[[], Any]] = [summarise, *([partial(write_lives, *film)] if options.videos else [])]
    numbers, *_ = in_parallel(jobs, min(width, len(jobs)), "sum up")
    results = {
        "config": recorded(config),
        "episodes": checksum,
        **{f"{part}_tasks": rows.tolist() for part, rows in tasks.items()},
        "references": setting.references,
        **numbers,
        **exploration.exploration_numbers([explored], options, config.seed),
        **sections,
    }
    write_figures(folder, env, results, learners, config.summaries)
    return results


def _setting(env: TensorEnv, policy: GPTPolicy, exact: Mapping[str, Mapping[str, Expectation]]) -> protocol.Setting:
    """Setting of an evaluation of `policy` with these `exact` references by part of the tasks. In rooms nothing is
    drawn, so no episode is better than the optimum."""
    rewards, num_steps = env.spec.reward_values, env.spec.max_episode_steps
    possible = {"steps_to_goal": (0.0, float(num_steps))}
    possible |= {"returns": (min(0.0, *rewards) * num_steps, max(0.0, *rewards) * num_steps)} if rewards else {}
    return protocol.Setting(
        {part: protocol.exact_numbers(found) for part, found in exact.items()},
        protocol.decoding_name(policy.temperature, policy.epsilon),
        env.has_planner and env.spec.success == "best_action",
        possible,
        isinstance(env, Room) and env.is_exact,
    )


def _beside(
    exact: Mapping[str, Expectation], env: TensorEnv, episodes: Mapping[str, Adaptation]
) -> dict[str, list[float]]:
    """Mean return on each task of random play and of the best one, as far as they are known or were played."""
    if exact:
        return {name: found.episode_return.tolist() for name, found in exact.items()}
    return {
        name: episodes[name].returns.mean((1, 2)).tolist() for name in ("random", env.best_name) if name in episodes
    }


def _guide(config: Config, env: TensorEnv, parts: dict[str, list[int]], folder: Path, suffix: str) -> str:
    """Lines that name the results of an evaluation, with what to look for in the first picture and the first video."""
    part, probes = protocol.shown_part(parts), folder / "probes.png"
    lines = [
        f"look first    {folder / 'adaptation.png'}",
        f"              The weights are frozen: if '{protocol.PARTS[part]}' rises, the model learns in its",
        "              context, from near 'random' towards the other dashed lines, which are references.",
    ]
    if probes.exists():
        lines += [f"              {probes.name} beside it: with a blanked or wiped context the curve should stay low."]
    tasks = env.all_tasks()[parts[part]]
    films = config.folder("videos") / f"in_context{suffix}"
    first = films / f"{env.label(tasks[compared_tasks(env, tasks)[-1]])}.mp4"
    if first.exists():
        lines += [
            f"start with    {first}",
            "              One life on the task that takes longest, with the return of each episode below. Left the",
            "              model: it should search first and go straight later. Right the source agent of that task,",
            "              if there is one, which learns by its own algorithm. Green walls: a reward, or a success.",
        ]
    lines += [f"all numbers   {folder / RESULTS}"]
    lines += [f"all videos    {config.folder('videos')}"] if config.folder("videos").exists() else []
    return "\n".join([*lines, f"all curves    tensorboard --logdir {config.folder('logs')}"])


def _source_episodes(config: Config, store: Histories, tasks: Tensor) -> dict[str, Adaptation]:
    """First and last episodes of the source agents of training `tasks` in `store`."""
    label = f"{report.source_label(source_of(store.manifest['config'], store.folder).name)}, training tasks"
    options = config.evaluation
    ends = in_context.source_adaptation(store, tasks, options.num_train_streams, options.num_episodes)
    return {f"{label}, start of life": ends[0], f"{label}, end of life": ends[1]}


def _calibration(
    config: Config, objective: ObjectiveConfig, model: GPT | Acting, spec: EnvSpec, split: Json, store: Histories
) -> dict[str, Any]:
    """Section with the calibration of `model` on the development tasks of the histories that it learned from, for
    the targets of `objective`; empty unless it is asked for."""
    if not config.evaluation.calibration:
        return {}
    given, tasks = "evaluation.calibration=true", split["development"]
    refuse(not tasks, f"{given} needs development tasks: data.num_development_tasks=0 sets none aside")
    windows = development_windows(config, [store], tasks, objective, spec)
    on_device = Batch(*(column.to(model.device) for column in windows))
    return {"calibration": calibration(model.eval(), spec, on_device, target_of(objective))}


def _plays(
    config: Config, env: Env[State], players: Mapping[str, tuple[Policy[Any], Tensor, int]]
) -> list[Callable[[], tuple[str, Any]]]:
    """Jobs that play parts of the tasks of each of `players`: a policy, its tasks, and the number of streams of each
    task. The model itself plays a few tasks at a time, so that there is work for all processes."""
    jobs: list[Callable[[], tuple[str, Any]]] = []
    for name, (policy, tasks, num_streams) in players.items():
        at_a_time = max(1, _STREAMS // num_streams) if isinstance(policy, GPTPolicy) and tasks.is_cpu else len(tasks)
        for first in range(0, len(tasks), at_a_time):
            rows = tasks[first : first + at_a_time]
            jobs.append(partial(_play, config, env, name, policy, rows, num_streams, first))
    return jobs


def _moved_plays(
    config: Config, env: TensorEnv, policy: Policy[Any], learners: Mapping[str, Policy[Any]], tasks: Tensor
) -> list[Callable[[], tuple[str, Any]]]:
    """Jobs in which the goal of each of `tasks` moves; none if it cannot, or should not."""
    options = config.evaluation
    if not (options.moved_goal and moved_goal.can_move(env, tasks)):
        return []
    world, pairs = moved_goal.MovedGoal(env, measures.move_of(options.num_episodes)), moved_goal.moving(tasks)
    movers = moved_goal.movers(policy, learners).items()
    return _plays(config, world, {name: (mover, pairs, options.num_probe_streams) for name, mover in movers})


def _play(
    config: Config, env: Env[State], name: str, policy: Policy[Any], rows: Tensor, num_streams: int, first: int
) -> tuple[str, tuple[Adaptation, Rollout]]:
    num_episodes = config.evaluation.num_episodes
    return name, in_context.play_episodes(policy, env, rows, num_streams, num_episodes, config.seed, first)


def _results(parts: Sequence[tuple[str, Any]]) -> dict[str, tuple[Adaptation, Rollout]]:
    """Episodes and transitions of each policy, of all parts of its tasks."""
    names = dict.fromkeys(name for name, _ in parts)
    return {name: in_context.joined([part for place, part in parts if place == name]) for name in names}


def check_room(config: Config, model: GPT | Acting, spec: EnvSpec, parts: dict[str, list[int]]) -> None:
    """Raise `ConfigError` if the device of `model` has too little memory to play the tasks of `parts`."""
    options = config.evaluation
    num_shown, *further = map(len, parts.values())
    numbers = {"num_streams": num_shown, "num_train_streams": max(further, default=0)}
    if options.ablations or options.reward_ablations or options.temperatures or options.moved_goal:
        numbers["num_probe_streams"] = num_shown
    for name, num_tasks in numbers.items():
        num_streams, deciding = num_tasks * getattr(options, name), (f"evaluation.{name}", "evaluation.num_episodes")
        needs = playing(config, model.config, spec, num_streams, options.num_episodes, model.device, deciding)
        check_memory(config, needs, model.device)
    check_memory(config, [bootstrap(config, num_shown)], torch.device("cpu"))
