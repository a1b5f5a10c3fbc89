"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/
"""

from pathlib import Path

import torch

from src.config import check_same
from src.schema import Config
from src.contracts import Metrics
from src.data.history_store import open_histories
from src.data.windows import Windows
from src.envs import make_env
from src.evaluation.in_context import play_steps
from src.files import only_writer, write_json
from src.nn.gpt import GPT
from src.nn.gpt_policy import GPTPolicy
from src.objectives.ad import AlgorithmDistillation
from src.runtime import prepare, recorded, run_stage
from src.training.checkpoint import load_newest
from src.training.fit import Evaluation, fit

OBJECTIVES = {"ad": AlgorithmDistillation}


def main(config: Config) -> Path:
    """Train, or continue training; returns the folder with the checkpoints."""
    folder = config.folder("logs") / "gpt"
    device = prepare(config)
    histories = open_histories(config.histories_folder)
    check_same(config, histories.manifest["config"], ("env", "tasks", "source"), str(histories.folder))
    with only_writer(folder):
        if found := load_newest(folder, "last", device):
            check_same(config, found[1]["description"]["config"], _COMPARED, str(folder))
        if (folder / "finished.json").exists():
            print(f"all {config.trainer.num_updates} updates of {config.name} are done: {folder}")
            return folder
        split = histories.manifest["tasks"]
        num_validation = config.data.num_validation_tasks
        train = split["train"][: len(split["train"]) - num_validation]
        validation, held_out = split["train"][len(train) :], split["held_out"]
        windows = Windows(histories, config.data, train, config.model.context_len, device)
        print(f"{windows.num_windows:,} windows of {config.model.context_len} steps from {windows.num_rows:,} rows")
        env = make_env(config.env, device)
        model = GPT(config.model, env.spec).to(device)
        all_tasks = env.all_tasks().to(device)

        def evaluate() -> Evaluation:
            metrics: Metrics = {}
            for part, tasks in (("validation", validation), ("held_out", held_out)):
                if tasks:
                    metrics |= {f"{part}_{name}": value for name, value in look(all_tasks[tasks]).items()}
            return Evaluation(metrics, metrics.get("validation_late_reward", 0.0))

        def look(tasks: torch.Tensor) -> Metrics:
            policy = GPTPolicy(
                model, config.evaluation.decoding, config.evaluation.temperature, config.evaluation.context_kept
            )
            trainer = config.trainer
            return play_steps(policy, env, tasks, trainer.evaluation_streams, trainer.evaluation_steps, config.seed)

        fit(
            model,
            OBJECTIVES[config.objective.name](config.objective),
            lambda update: windows.batch(config.seed, update, config.trainer.batch_size),
            evaluate,
            config.optimizer,
            config.trainer,
            folder,
            {"config": recorded(config), "env": env.spec._asdict(), "tasks": split | {"validation": validation}},
            device,
        )
        write_json(folder / "finished.json", {"updates": config.trainer.num_updates})
    print(f"checkpoints and TensorBoard curves: {folder}")
    return folder


_COMPARED = ("seed", "env", "tasks", "source", "data", "model", "objective", "optimizer", "trainer")

if __name__ == "__main__":
    run_stage(main, "src.train_gpt", __doc__)
