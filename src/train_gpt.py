"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/

A mixture of several histories: histories=[NAME,NAME] data.weights=[0.7,0.3] name=mixed

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.train_gpt [KEY=VALUE ...]
"""

from contextlib import nullcontext
from pathlib import Path

import torch

from src.config import check_same
from src.data.history_store import Histories
from src.data.mixture import Mixture, check_stores, described, open_stores
from src.data.windows import Windows
from src.envs import make_env
from src.evaluation.periodic import LookInContext
from src.files import only_writer, write_json
from src.nn.gpt import GPT
from src.objectives.ad import AlgorithmDistillation
from src.objectives.dpt import DecisionPretraining
from src.runtime import prepare, recorded, run_stage
from src.schema import PROJECT, Config
from src.training.checkpoint import load_newest
from src.training.distributed import Ranks, joined
from src.training.fit import fit
from src.training.run_record import check_snapshots

OBJECTIVES = {"ad": AlgorithmDistillation, "dpt": DecisionPretraining}


def main(config: Config) -> Path:
    """Train, or continue training; returns the folder with the checkpoints."""
    folder = config.folder("logs") / "gpt"
    check_snapshots(config.summaries.code_snapshots, PROJECT)
    with joined(prepare(config)) as (ranks, device):
        ranks.check_divides(config.trainer.mini_batch_size, config.trainer.gradient_accumulation_steps)
        stores = open_stores(config)
        with only_writer(folder) if ranks.is_writer else nullcontext():
            if found := load_newest(folder, "last", torch.device("cpu")):
                check_same(config, found[1]["description"]["config"], compared(config), str(folder))
                check_stores(stores, found[1]["description"]["histories"], folder)
            if (folder / "finished.json").exists():
                announce(f"all {config.trainer.num_iterations} updates of {config.name} are done: {folder}", ranks)
                return folder
            train(config, stores, folder, device, ranks)
            if ranks.is_writer:
                write_json(folder / "finished.json", {"updates": config.trainer.num_iterations})
    announce(f"checkpoints and TensorBoard curves: {folder}", ranks)
    return folder


def train(config: Config, stores: list[Histories], folder: Path, device: torch.device, ranks: Ranks) -> None:
    """Fit the model to windows of all stores."""
    trainer, split = config.trainer, stores[0].manifest["tasks"]
    num_train = len(split["train"]) - config.data.num_validation_tasks
    validation = split["train"][num_train:]
    length = trainer.mini_batch_length or config.model.context_len
    tasks = split["train"][:num_train]
    parts = [Windows(store, config.data, config.objective, tasks, length, device) for store in stores]
    mixture = Mixture(parts, config.data.weights)
    for store, part, share in zip(stores, parts, mixture.shares, strict=True):
        what = f"{part.num_windows:,} windows of {length} steps from {part.num_rows:,} rows of {store.folder}"
        announce(f"{what}, drawn with probability {share:.3f}", ranks)
    spec = make_env(config.env, device).spec
    model = GPT(config.model, spec, trainer.activation_checkpointing).to(device)
    fit(
        model,
        OBJECTIVES[config.objective.name](config.objective, spec),
        lambda update: mixture.batch(config.seed, update, trainer.mini_batch_size, ranks.rank, ranks.size),
        LookInContext(config, validation, split["held_out"]),
        config,
        folder,
        {
            "config": recorded(config),
            "env": spec._asdict(),
            "tasks": split | {"validation": validation},
            "histories": described(stores),
        },
        device,
        ranks,
    )


def compared(config: Config) -> tuple[str, ...]:
    """Groups of options that a continued run must have as the run before it. The source is that of the histories, which
    must be the same."""
    groups = ("seed", "env", "tasks", "data", "model", "objective", "optimizer", "trainer")
    return (*groups, "policy", "evals") if config.trainer.evaluate else groups


def announce(line: str, ranks: Ranks) -> None:
    if ranks.is_writer:
        print(line)


if __name__ == "__main__":
    run_stage(main, "src.train_gpt", __doc__)
