"""Stage three: roll the frozen model out in context on tasks it never saw.

python -m src.evaluate [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/evaluation/, videos/<name>/

With other options of the world than those of the training, such as `env.size=13`, all its tasks that the model was not
trained on are held out: logs/<name>/evaluation-size=13/, videos/<name>/in_context-size=13/.
"""

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from src.config import check_same
from src.contracts import ConfigError, Json
from src.data.history_store import Histories
from src.data.mixture import check_stores, open_stores
from src.envs import make_env
from src.envs.base import TensorEnv
from src.envs.tasks import Split
from src.evaluation.comparison import write_comparisons
from src.evaluation.figures import write_figures
from src.evaluation.in_context import Adaptation, play_episodes, source_adaptation
from src.evaluation.references import exact_references, optimum_of, references_of
from src.evaluation.report import Curves, constant_curves, curves_of, final_of, solved, source_label, table
from src.evaluation.transfer import changes_of, new_tasks, readable_spec, suffix_of, world_of
from src.files import only_writer, read_json, write_json
from src.nn.gpt import GPT
from src.nn.gpt_policy import GPTPolicy
from src.runtime import prepare, recorded, run_stage
from src.schema import Config, TasksConfig
from src.training import checkpoint
from src.training_schema import source_of

_COMPARED = ("data", "model", "objective", "optimizer", "trainer")
_WORLD = ("env", "tasks")


def main(config: Config) -> Path:
    """Evaluate, or say what an earlier evaluation found; returns the folder with `results.json`."""
    device = prepare(config)
    gpt_folder = config.run_folder / "gpt"
    found = checkpoint.load_newest(gpt_folder, config.evaluation.checkpoint, device)
    if found is None or not (gpt_folder / "finished.json").exists():
        raise ConfigError(f"no finished training in {gpt_folder}: run `python -m src.train_gpt` with the same options")
    state, about = found
    trained = about["description"]
    changes = changes_of(config, trained["config"])
    # A mixture's stores say what their sources were.
    compared = _COMPARED if len(config.histories) > 1 else (*_COMPARED, "source")
    check_same(config, trained["config"], compared if changes else (*_WORLD, *compared), str(gpt_folder))
    suffix = suffix_of(changes)
    folder = config.folder("logs") / f"evaluation{suffix}"
    with closing(make_env(config.env, device)) as env, ExitStack() as stack:
        model = GPT(config.model, readable_spec(config, env.spec, trained["env"])).to(device)
        model.load_state_dict(state["model"])
        tasks = trained["tasks"]
        held_out = new_tasks(config, env, trained["config"], tasks) if changes else tasks["held_out"]
        played = (folder / "results.json").exists()
        store = None if played else shown_store(config, trained, bool(changes))
        stack.enter_context(only_writer(folder))  # not before it is clear that there will be something to write
        if (folder / "results.json").exists():
            results = read_json(folder / "results.json")
            check_same(config, results["config"], (*_WORLD, *compared, "seed", "policy", "evaluation"), str(folder))
            if results["checkpoint"] != about["sha256"]:
                raise ConfigError(f"{folder} holds results of another model: give another name=, or remove it")
        else:
            results = evaluate(config, env, model, Split(tasks["train"], held_out), store, suffix, device)
            results["checkpoint"] = about["sha256"]
            write_json(folder / "results.json", results)
        announce(config, env, results, suffix)
    return folder


class Played(NamedTuple):
    """What a policy came to on G tasks."""

    tasks: Tensor  # [G, task_dim]
    adaptation: Adaptation


def evaluate(
    config: Config,
    env: TensorEnv,
    model: GPT,
    split: Split,
    store: Histories | None,
    suffix: str,
    device: torch.device,
) -> dict[str, Any]:
    """Play the tasks of `split`, compare with the references, write plots and videos; returns what `results.json`
    holds. The source shown is that of `store`; None: the configured one. With a `suffix` this is another world than the
    trained one: its training tasks and its source's lives are no part of this."""
    options, seed = config.evaluation, config.seed
    policy = GPTPolicy(model, options.epsilon_greedy, config.policy.temperature, config.policy.context_kept)
    all_tasks = env.all_tasks().to(device)
    held_out = all_tasks[split.held_out]
    ours, played = play_episodes(policy, env, held_out, options.num_streams, options.num_episodes, seed)
    parts = {"held_out": Played(held_out, ours)}
    measured = {"model, held-out tasks": parts["held_out"]}
    if store and not suffix:
        train = all_tasks[split.train]
        some = train[: options.num_train_tasks or None]
        familiar, _ = play_episodes(policy, env, some, options.num_train_streams, options.num_episodes, seed)
        measured["model, training tasks"] = parts["train"] = Played(some, familiar)
        measured |= {name: Played(train, life) for name, life in source_lives(config, store).items()}
    references = references_of(env, config)
    for name, reference in references.items():
        adaptation, _ = play_episodes(reference, env, held_out, options.num_streams, options.num_episodes, seed)
        measured[name] = Played(held_out, adaptation)
    results = {
        "config": recorded(config),
        **{f"{part}_tasks": found.tasks.tolist() for part, found in parts.items()},
        "curves": all_curves(config, env, measured, held_out),
        "final": {
            part: final_of(found.adaptation, options, seed, optimum_of(env, found.tasks))
            for part, found in parts.items()
        },
    }
    write_figures(config.folder("logs") / f"evaluation{suffix}", config.name + suffix, env, results, references)
    if options.videos:
        videos = config.folder("videos") / f"in_context{suffix}"
        source = source_of(store.manifest["config"]) if store else config.source
        write_comparisons(replace(config, source=source), videos, env, held_out, played, device)
    return results


def shown_store(config: Config, trained: Json, elsewhere: bool) -> Histories | None:
    """The first of the histories that the `trained` model learned from, whose source the model is shown beside; None
    where nothing is read of it: `elsewhere`, in another world, a source is shown in videos alone, and only that of a
    mixture is not the configured one. Raises `ConfigError` where its lives are too short."""
    options = config.evaluation
    if elsewhere and not (options.videos and len(config.histories) > 1):
        return None
    about = trained["config"]
    stores = open_stores(replace(config, env=world_of(about), tasks=TasksConfig(**about["tasks"])))
    check_stores(stores, trained["histories"], config.run_folder / "gpt")
    first = stores[0]
    row_len, needed = first.columns["obs"].shape[1], (options.num_episodes + 1) * first.spec.max_episode_steps
    if needed > row_len:
        raise ConfigError(
            f"evaluation.num_episodes={options.num_episodes} needs {needed} steps a row, for as many episodes of the "
            f"source; {first.folder} has {row_len}"
        )
    return first


def source_lives(config: Config, store: Histories) -> dict[str, Adaptation]:
    """What the source agents came to on the training tasks, at both ends of their lives."""
    options = config.evaluation
    first, last = source_adaptation(store, options.num_train_streams, options.num_episodes)
    source = source_label(source_of(store.manifest["config"]).name)
    return {f"{source}, training tasks, start of life": first, f"{source}, training tasks, end of life": last}


def all_curves(config: Config, env: TensorEnv, measured: dict[str, Played], held_out: Tensor) -> dict[str, Curves]:
    """Curves of all that was `measured`, and of the exact references on the `held_out` tasks `[G, task_dim]`. Regret is
    among them where a task is to find the best action."""
    regrets = env.spec.success == "best_action"
    curves = {}
    for name, (tasks, adaptation) in measured.items():
        optimum = optimum_of(env, tasks) if regrets else None
        curves[name] = curves_of(adaptation, config.evaluation, config.seed, optimum)
    optimum = optimum_of(env, held_out) if regrets else None
    for name, expectation in exact_references(env, held_out).items():
        curves[name] = constant_curves(expectation, config.evaluation.num_episodes, optimum)
    return curves


def announce(config: Config, env: TensorEnv, results: Json, suffix: str) -> None:
    """Print the table and where everything is."""
    final = results["final"]["held_out"]
    print(table(results["curves"]))
    num_tasks, share = len(results["held_out_tasks"]), final["fraction_solved"]
    print(f"\nheld-out tasks {solved(env.spec)}: {share:.0%} of {num_tasks}")
    low, high = final["success"]["low"], final["success"]["high"]
    interval = f"{config.evaluation.confidence:.0%} interval {low:.3f} to {high:.3f}"
    print(f"success on held-out tasks over the last episodes: {final['success']['mean']:.3f}, {interval}")
    if env.spec.success == "best_action":
        low, high = final["regret"]["low"], final["regret"]["high"]
        interval = f"{config.evaluation.confidence:.0%} interval {low:.2f} to {high:.2f}"
        print(f"regret on held-out tasks over all episodes: {final['regret']['mean']:.2f}, {interval}")
    print(f"numbers and plots  {config.folder('logs') / f'evaluation{suffix}'}")
    print(f"videos             {config.folder('videos')}")
    print(f"board              tensorboard --logdir {config.folder('logs')}")


if __name__ == "__main__":
    run_stage(main, "src.evaluate", __doc__ or "")
