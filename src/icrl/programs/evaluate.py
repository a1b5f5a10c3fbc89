"""Stage three: roll the frozen model out in context on tasks it never saw.

python -m src.evaluate [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/evaluation/, videos/<name>/

With other options of the world than those of the training, such as `env.size=13`, all its tasks that the model was not
trained on are held out: logs/<name>/evaluation-size=13/, videos/<name>/in_context-size=13/. Likewise for who plays:
`policy.model=awr` an extracted policy, `policy.model=critic` the values alone, `policy.advantage_scale=1` the model
guided by them.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

from icrl.config.command_line import run_stage
from icrl.config.options import replace
from icrl.config.root import Config, TasksConfig
from icrl.config.training_schema import source_of
from icrl.contracts import ConfigError, EnvSpec, Json, Policy
from icrl.data.history_store import Histories
from icrl.data.mixture import check_stores, open_stores
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.dark_room import DarkRoom
from icrl.evaluation.coverage import coverage_of
from icrl.evaluation.in_context import Adaptation, play_episodes, source_adaptation
from icrl.evaluation.measures import exact_numbers
from icrl.evaluation.policies import open_player
from icrl.evaluation.probes import Wiped, policy_of, probes_for
from icrl.evaluation.protocol import Setting, coverage_numbers, decoding_name, label_of, numbers_of
from icrl.evaluation.references import COVERING_PLAN, chance, exact_references, references_of
from icrl.evaluation.report import all_curves, coverage_table, source_label, summary, table
from icrl.evaluation.saved_episodes import save_episodes
from icrl.evaluation.saved_results import read_results
from icrl.evaluation.transfer import changes_of, new_tasks, readable_spec, suffix_of, world_of
from icrl.nn.gpt import GPT
from icrl.nn.guided import Guided
from icrl.plots.comparison import write_comparisons
from icrl.plots.figures import write_figures
from icrl.runs.device import prepare, recorded
from icrl.runs.files import only_writer
from icrl.runs.identity import Identity, check_owner, check_same, identity_of, write_owned
from icrl.runs.memory import check_memory
from icrl.training.needs import bootstrap, playing

_WORLD = ("env", "tasks")


def main(config: Config) -> Path:
    """Evaluate, or say what an earlier evaluation found; returns the folder with `results.json`."""
    device = prepare(config)
    player = open_player(config, device)
    trained = player.described
    changes = changes_of(config, trained["config"])
    # A mixture's stores say what their sources were.
    compared = player.compared if len(config.histories) > 1 else (*player.compared, "source")
    check_same(config, trained["config"], compared if changes else (*_WORLD, *compared), str(player.folder))
    suffix = suffix_of(changes | player.suffixes, config.evaluation.tasks)
    folder = config.folder("logs") / f"evaluation{suffix}"
    identifying = (*_WORLD, *compared, "seed", "policy", "evaluation")
    owner = identity_of("evaluate", config, identifying, {"model": player.checksum})
    with closing(make_env(config.env, device)) as env, ExitStack() as stack:
        model = player.make(config, readable_spec(config, env.spec, trained["env"]), device)
        tasks = trained["tasks"]
        new = {"held_out": new_tasks(config, env, trained["config"], tasks)} if changes else {}
        parts = new or parts_of(config, tasks)
        played = (folder / "results.json").exists()
        store = None if played else shown_store(config, trained, bool(changes))
        if not played:
            check_room(config, model, env.spec, parts)
        stack.enter_context(only_writer(folder))  # not before it is clear that there will be something to write
        if (folder / "results.json").exists():
            results, whose = read_results(folder)
            check_same(config, results["config"], identifying, str(folder))
            if results["checkpoint"] != player.checksum:
                raise ConfigError(f"{folder} holds results of another model: give another name=, or remove it")
            check_owner(folder / "results.json", whose, owner)
        else:
            results = evaluate(config, env, model, parts, store, suffix, device, owner)
            results["checkpoint"] = player.checksum
            write_owned(folder / "results.json", owner, player.step, results)
        announce(config, env, results, suffix)
    return folder


def evaluate(
    config: Config,
    env: TensorEnv,
    model: GPT | Guided,
    parts: dict[str, list[int]],
    store: Histories | None,
    suffix: str,
    device: torch.device,
    owner: Identity,
) -> dict[str, Any]:
    """Play the tasks of `parts`, compare with the references on the first part, write episodes, plots and videos to
    folders that end with `suffix`; returns what `results.json` holds. The source shown is that of `store`; None: the
    configured one. `owner` is the run that evaluates."""
    options, seed, policy = config.evaluation, config.seed, policy_of(config, model)
    all_tasks = env.all_tasks().to(device)
    tasks = {part: all_tasks[numbers] for part, numbers in parts.items()}
    about, *further = parts
    shown = tasks[about]
    episodes: dict[str, Adaptation] = {}
    episodes[about], played = play_episodes(policy, env, shown, options.num_streams, options.num_episodes, seed)
    for part in further:
        streams = options.num_train_streams
        episodes[part], _ = play_episodes(policy, env, tasks[part], streams, options.num_episodes, seed)
    if store and "train" in parts:
        episodes |= source_lives(config, store, len(parts["train"]))
    learners = references_of(env, config)
    others = [(learners, options.num_streams), (probes_for(config, model, env, shown), options.num_probe_streams)]
    for policies, num_streams in others:
        for name, other in policies.items():
            episodes[name], _ = play_episodes(other, env, shown, num_streams, options.num_episodes, seed)
    covered = coverage_beside(config, model, env, learners, len(shown))
    folder = config.folder("logs") / f"evaluation{suffix}"
    checksum = save_episodes(folder, episodes, owner, covered)
    setting = Setting(
        {part: exact_numbers(exact_references(env, rows)) for part, rows in tasks.items()},
        decoding_name(policy.temperature, policy.epsilon),
        regrets=env.has_planner and env.spec.success == "best_action",
    )
    results = {
        "config": recorded(config),
        "episodes": checksum,
        **{f"{part}_tasks": rows.tolist() for part, rows in tasks.items()},
        "references": setting.references,
        **numbers_of({seed: episodes}, setting, options, seed),
        **coverage_numbers([covered], options, seed),
    }
    write_figures(folder, config.name + suffix, env, results, learners)
    if options.videos:
        videos = config.folder("videos") / f"in_context{suffix}"
        source = source_of(store.manifest["config"]) if store else config.source
        write_comparisons(replace(config, source=source), videos, env, shown, played, device)
    return results


def parts_of(config: Config, tasks: Json) -> dict[str, list[int]]:
    """The numbers of the tasks to play, by part, where the model was trained on the split `tasks`: those in question
    first, last those that it learned from. With `evaluation.tasks=development` no held-out task is among them."""
    learned = tasks["train"][: len(tasks["train"]) - len(tasks["development"])]
    test = {"held_out": tasks["held_out"]} if config.evaluation.tasks == "test" else {}
    development = {"development": tasks["development"]} if tasks["development"] else {}
    return test | development | {"train": learned[: config.evaluation.num_train_tasks or None]}


def coverage_beside(
    config: Config, model: GPT | Guided, env: TensorEnv, learners: Mapping[str, Policy[Any]], num_tasks: int
) -> dict[str, Any]:
    """Coverage (see `coverage_of`) of the model, with its context kept and wiped, of `learners` and of chance, in as
    many streams as a probe has on `num_tasks` tasks; nothing in worlds that no covering plan is for."""
    if not isinstance(env, DarkRoom) or COVERING_PLAN not in learners:
        return {}
    policy = policy_of(config, model)
    ours = {"model, context kept": policy, label_of("wiped"): Wiped(policy)}
    policies = {**ours, **learners, "random": chance(env, config)}
    return coverage_of(policies, env, config.evaluation.num_probe_streams * num_tasks, config.seed)


def check_room(config: Config, model: GPT | Guided, spec: EnvSpec, parts: dict[str, list[int]]) -> None:
    """Raise `ConfigError` where the device of `model` has less memory than it takes to play the tasks of `parts`."""
    options = config.evaluation
    num_shown, *further = map(len, parts.values())
    numbers = {"num_streams": num_shown, "num_train_streams": max(further, default=0)}
    if options.ablations or options.temperatures:
        numbers["num_probe_streams"] = num_shown
    for name, num_tasks in numbers.items():
        num_streams, deciding = num_tasks * getattr(options, name), (f"evaluation.{name}", "evaluation.num_episodes")
        needs = playing(config, model.config, spec, num_streams, options.num_episodes, model.device, deciding)
        check_memory(config, needs, model.device)
    check_memory(config, [bootstrap(config, num_shown)], torch.device("cpu"))


def shown_store(config: Config, trained: Json, elsewhere: bool) -> Histories | None:
    """The first of the histories that the `trained` model learned from, whose source the model is shown beside; None
    where nothing is read of it: `elsewhere`, in another world, a source is shown in videos alone, and only that of a
    mixture is not the configured one. Raises `ConfigError` where its lives are too short."""
    options = config.evaluation
    if elsewhere and not (options.videos and len(config.histories) > 1):
        return None
    about = trained["config"]
    stores = open_stores(replace(config, env=world_of(about), tasks=TasksConfig(**about["tasks"])))
    check_stores(stores, trained["histories"], config.run_folder)
    first = stores[0]
    row_len, needed = first.columns["obs"].shape[1], (options.num_episodes + 1) * first.spec.max_episode_steps
    if needed > row_len:
        raise ConfigError(
            f"evaluation.num_episodes={options.num_episodes} needs {needed} steps a row, for as many episodes of the "
            f"source; {first.folder} has {row_len}"
        )
    return first


def source_lives(config: Config, store: Histories, num_tasks: int) -> dict[str, Adaptation]:
    """What the source agents came to on the first `num_tasks` training tasks, at both ends of their lives."""
    options = config.evaluation
    first, last = source_adaptation(store, num_tasks, options.num_train_streams, options.num_episodes)
    source = source_label(source_of(store.manifest["config"]).name)
    return {f"{source}, training tasks, start of life": first, f"{source}, training tasks, end of life": last}


def announce(config: Config, env: TensorEnv, results: Json, suffix: str) -> None:
    """Print the table and where everything is."""
    print(table(all_curves(results)))
    if coverage := results.get("coverage"):
        print(f"\n{coverage_table(coverage)}")
    print(f"\n{summary(results, env.spec)}")
    print(f"numbers and plots  {config.folder('logs') / f'evaluation{suffix}'}")
    if config.folder("videos").exists():
        print(f"videos             {config.folder('videos')}")
    print(f"board              tensorboard --logdir {config.folder('logs')}")


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.evaluate", __doc__ or "")
