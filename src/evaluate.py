"""Stage three: roll the frozen model out in context on tasks it never saw.

python -m src.evaluate [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/evaluation/, videos/<name>/

With other options of the world than those of the training, such as `env.size=13`, all its tasks that the model was not
trained on are held out: logs/<name>/evaluation-size=13/, videos/<name>/in_context-size=13/. Likewise for who plays:
`policy.model=awr` an extracted policy, `policy.model=critic` the values alone, `policy.advantage_scale=1` the model
guided by them.
"""

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from src.config import check_same
from src.contracts import ConfigError, EnvSpec, Json
from src.data.history_store import Histories
from src.data.mixture import check_stores, open_stores
from src.envs import make_env
from src.envs.base import TensorEnv
from src.envs.tasks import Split
from src.evaluation.comparison import write_comparisons
from src.evaluation.figures import write_figures
from src.evaluation.in_context import Adaptation, play_episodes, source_adaptation
from src.evaluation.players import open_player
from src.evaluation.probes import policy_of, probes_for
from src.evaluation.protocol import Setting, decoding_name, exact_numbers, numbers_of
from src.evaluation.references import exact_references, references_of
from src.evaluation.report import all_curves, source_label, summary, table
from src.evaluation.saved_episodes import save_episodes
from src.evaluation.transfer import changes_of, new_tasks, readable_spec, suffix_of, world_of
from src.files import only_writer, read_json, write_json
from src.memory import check_memory
from src.nn.gpt import GPT
from src.nn.guided import Guided
from src.runtime import prepare, recorded, run_stage
from src.schema import Config, TasksConfig
from src.training.needs import bootstrap, playing
from src.training_schema import source_of

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
    suffix = suffix_of(changes | player.suffixes)
    folder = config.folder("logs") / f"evaluation{suffix}"
    with closing(make_env(config.env, device)) as env, ExitStack() as stack:
        model = player.make(config, readable_spec(config, env.spec, trained["env"]), device)
        tasks = trained["tasks"]
        held_out = new_tasks(config, env, trained["config"], tasks) if changes else tasks["held_out"]
        played = (folder / "results.json").exists()
        store = None if played else shown_store(config, trained, bool(changes))
        if not played:
            check_room(config, model, env.spec, Split([] if changes else tasks["train"], held_out))
        stack.enter_context(only_writer(folder))  # not before it is clear that there will be something to write
        if (folder / "results.json").exists():
            results = read_json(folder / "results.json")
            check_same(config, results["config"], (*_WORLD, *compared, "seed", "policy", "evaluation"), str(folder))
            if results["checkpoint"] != player.checksum:
                raise ConfigError(f"{folder} holds results of another model: give another name=, or remove it")
        else:
            split = Split(tasks["train"], held_out)
            results = evaluate(config, env, model, split, store, suffix, device, bool(changes))
            results["checkpoint"] = player.checksum
            write_json(folder / "results.json", results)
        announce(config, env, results, suffix)
    return folder


def evaluate(
    config: Config,
    env: TensorEnv,
    model: GPT | Guided,
    split: Split,
    store: Histories | None,
    suffix: str,
    device: torch.device,
    elsewhere: bool,
) -> dict[str, Any]:
    """Play the tasks of `split`, compare with the references, write episodes, plots and videos to folders that end with
    `suffix`; returns what `results.json` holds. The source shown is that of `store`; None: the configured one.
    `elsewhere`, in another world than the trained one, its training tasks and source's lives are no part of this."""
    options, seed, policy = config.evaluation, config.seed, policy_of(config, model)
    all_tasks = env.all_tasks().to(device)
    held_out = all_tasks[split.held_out]
    tasks = {"held_out": held_out}
    episodes: dict[str, Adaptation] = {}
    episodes["held_out"], played = play_episodes(policy, env, held_out, options.num_streams, options.num_episodes, seed)
    if store and not elsewhere:
        tasks["train"] = train = all_tasks[split.train][: options.num_train_tasks or None]
        episodes["train"], _ = play_episodes(policy, env, train, options.num_train_streams, options.num_episodes, seed)
        episodes |= source_lives(config, store, len(train))
    learners = references_of(env, config)
    others = [(learners, options.num_streams), (probes_for(config, model, env, held_out), options.num_probe_streams)]
    for policies, num_streams in others:
        for name, other in policies.items():
            episodes[name], _ = play_episodes(other, env, held_out, num_streams, options.num_episodes, seed)
    folder = config.folder("logs") / f"evaluation{suffix}"
    save_episodes(folder, episodes)
    setting = Setting(
        {part: exact_numbers(exact_references(env, rows)) for part, rows in tasks.items()},
        decoding_name(policy.temperature, policy.epsilon),
        regrets=env.has_planner and env.spec.success == "best_action",
    )
    results = {
        "config": recorded(config),
        **{f"{part}_tasks": rows.tolist() for part, rows in tasks.items()},
        "references": setting.references,
        **numbers_of({seed: episodes}, setting, options, seed),
    }
    write_figures(folder, config.name + suffix, env, results, learners)
    if options.videos:
        videos = config.folder("videos") / f"in_context{suffix}"
        source = source_of(store.manifest["config"]) if store else config.source
        write_comparisons(replace(config, source=source), videos, env, held_out, played, device)
    return results


def check_room(config: Config, model: GPT | Guided, spec: EnvSpec, split: Split) -> None:
    """Raise `ConfigError` where the device of `model` has less memory than it takes to play the tasks of `split`."""
    options = config.evaluation
    numbers = {
        "num_streams": len(split.held_out),
        "num_train_streams": len(split.train[: options.num_train_tasks or None]),
    }
    if options.ablations or options.temperatures:
        numbers["num_probe_streams"] = len(split.held_out)
    for name, num_tasks in numbers.items():
        num_streams, deciding = num_tasks * getattr(options, name), (f"evaluation.{name}", "evaluation.num_episodes")
        needs = playing(config, model.config, spec, num_streams, options.num_episodes, model.device, deciding)
        check_memory(config, needs, model.device)
    check_memory(config, [bootstrap(config, len(split.held_out))], torch.device("cpu"))


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
    print(f"\n{summary(results, env.spec)}")
    print(f"numbers and plots  {config.folder('logs') / f'evaluation{suffix}'}")
    if config.folder("videos").exists():
        print(f"videos             {config.folder('videos')}")
    print(f"board              tensorboard --logdir {config.folder('logs')}")


if __name__ == "__main__":
    run_stage(main, "src.evaluate", __doc__ or "")
