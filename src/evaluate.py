"""Stage three: roll the frozen model out in context on tasks it never saw.

python -m src.evaluate [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/evaluation/, videos/<name>/
"""

from pathlib import Path
from typing import Any

import torch

from src.config import check_same
from src.contracts import ConfigError, Json
from src.data.history_store import open_histories
from src.envs import make_env
from src.evaluation.comparison import write_comparisons
from src.evaluation.figures import write_figures
from src.evaluation.in_context import play_episodes, source_adaptation
from src.evaluation.references import Searcher, optimal_exact, random_exact
from src.evaluation.report import constant_curves, curves_of, final_of, table
from src.files import only_writer, read_json, write_json
from src.nn.gpt import GPT
from src.nn.gpt_policy import GPTPolicy
from src.runtime import prepare, recorded, run_stage
from src.schema import Config
from src.training import checkpoint

_COMPARED = ("env", "tasks", "source", "data", "model", "objective", "optimizer", "trainer")


def main(config: Config) -> Path:
    """Evaluate, or say what an earlier evaluation found; returns the folder with `results.json`."""
    device = prepare(config)
    folder, gpt_folder = config.folder("logs") / "evaluation", config.run_folder / "gpt"
    found = checkpoint.load_newest(gpt_folder, config.evaluation.checkpoint, device)
    if found is None or not (gpt_folder / "finished.json").exists():
        raise ConfigError(f"no finished training in {gpt_folder}: run `python -m src.train_gpt` with the same options")
    state, about = found
    check_same(config, about["description"]["config"], _COMPARED, str(gpt_folder))
    with only_writer(folder):
        if (folder / "results.json").exists():
            results = read_json(folder / "results.json")
            check_same(config, results["config"], (*_COMPARED, "seed", "policy", "evaluation"), str(folder))
            if results["checkpoint"] != about["sha256"]:
                raise ConfigError(f"{folder} holds results of another model: give another name=, or remove it")
        else:
            results = evaluate(config, state["model"], about["description"]["tasks"], device)
            results["checkpoint"] = about["sha256"]
            write_json(folder / "results.json", results)
    announce(config, results, folder)
    return folder


def evaluate(config: Config, weights: Json, split: Json, device: torch.device) -> dict[str, Any]:
    """Play all tasks of `split`, compare with the references, write plots and videos; returns what `results.json`
    holds."""
    histories = open_histories(config.histories_folder)
    check_same(config, histories.manifest["config"], ("env", "tasks", "source"), str(histories.folder))
    env = make_env(config.env, device)
    model = GPT(config.model, env.spec).to(device)
    model.load_state_dict(weights)
    options = config.evaluation
    policy = GPTPolicy(model, options.epsilon_greedy, config.policy.temperature, config.policy.context_kept)
    all_tasks = env.all_tasks().to(device)
    held_out, train = all_tasks[split["held_out"]], all_tasks[split["train"]]
    num_episodes, seed = options.num_episodes, config.seed
    ours, played = play_episodes(policy, env, held_out, options.num_streams, num_episodes, seed)
    familiar, _ = play_episodes(policy, env, train, options.num_train_streams, num_episodes, seed)
    searcher, _ = play_episodes(Searcher(env), env, held_out, options.num_streams, num_episodes, seed)
    first, last = source_adaptation(histories, options.num_train_streams, num_episodes)
    source = config.source.name.upper()
    measured = {
        "model, held-out goals": ours,
        "model, training goals": familiar,
        f"{source}, training goals, start of life": first,
        f"{source}, training goals, end of life": last,
        "searcher": searcher,
    }
    exact = {"random": random_exact(env, held_out), "optimum": optimal_exact(env, held_out)}
    curves = {name: curves_of(adaptation, options, seed) for name, adaptation in measured.items()}
    curves |= {name: constant_curves(expectation, num_episodes) for name, expectation in exact.items()}
    results = {
        "config": recorded(config),
        "held_out_tasks": held_out.tolist(),
        "train_tasks": train.tolist(),
        "curves": curves,
        "final": {"held_out": final_of(ours, options, seed), "train": final_of(familiar, options, seed)},
    }
    write_figures(config, results, env.fixed_start)
    if options.videos:
        write_comparisons(config, env, held_out, played, device)
    return results


def announce(config: Config, results: Json, folder: Path) -> None:
    """Print the table and where everything is."""
    final = results["final"]["held_out"]
    print(table(results["curves"]))
    print(f"\nheld-out goals solved: {final['fraction_solved']:.0%} of {len(results['held_out_tasks'])}")
    low, high = final["success"]["low"], final["success"]["high"]
    interval = f"{config.evaluation.confidence:.0%} interval {low:.3f} to {high:.3f}"
    print(f"success on held-out goals over the last episodes: {final['success']['mean']:.3f}, {interval}")
    print(f"numbers and plots  {folder}")
    print(f"videos             {config.folder('videos')}")
    print(f"board              tensorboard --logdir {config.folder('logs')}")


if __name__ == "__main__":
    run_stage(main, "src.evaluate", __doc__ or "")
