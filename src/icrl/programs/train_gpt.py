"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/

A mixture of several histories: histories=[NAME,NAME] data.weights=[0.7,0.3] name=mixed

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.train_gpt [KEY=VALUE ...]
"""

from pathlib import Path

from icrl.config.command_line import dtype_of, run_stage
from icrl.config.root import Config
from icrl.evaluation.evaluators import LookInContext
from icrl.nn.gpt import GPT
from icrl.objectives.ad import AlgorithmDistillation
from icrl.objectives.dpt import DecisionPretraining
from icrl.training.needs import fitting_gpt
from icrl.training.program import Workplace, compared, run_program

PROGRAM = "train_gpt"
OBJECTIVES = {"ad": AlgorithmDistillation, "dpt": DecisionPretraining}


def main(config: Config) -> Path:
    """Train, or continue training; returns the folder with the checkpoints."""
    return run_program(config, PROGRAM, config.folder("logs") / "gpt", compared(config, "objective"), train)


def train(place: Workplace) -> int:
    """Fit the model to windows of all stores; returns the number of updates."""
    config, spec, tasks = place.config, place.spec(), place.tasks
    place.check_memory(fitting_gpt(config, spec, place.ranks.size), config.model)
    model = GPT(config.model, spec, config.trainer.activation_checkpointing).to(place.device, dtype_of(config))
    return place.fit(
        model,
        OBJECTIVES[config.objective.name](config.objective, spec),
        place.windows(config.objective),
        LookInContext(config, tasks["development"]),
        config.trainer.num_iterations,
    )


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.train_gpt", __doc__)
