"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/

A mixture of several histories: histories=[NAME,NAME] data.weights=[0.7,0.3] name=mixed

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.train_gpt [KEY=VALUE ...]
"""

from pathlib import Path

from icrl.config.command_line import run_stage
from icrl.config.root import Config
from icrl.evaluation.evaluators import InContextEvaluator
from icrl.nn.gpt import GPT
from icrl.objectives.ad import AlgorithmDistillation
from icrl.objectives.dpt import DecisionPretraining
from icrl.runs.device import dtype_of
from icrl.training.needs import fitting_gpt
from icrl.training.program import RunContext, compared, run_program

PROGRAM = "train_gpt"
OBJECTIVES = {"ad": AlgorithmDistillation, "dpt": DecisionPretraining}


def main(config: Config) -> Path:
    """Train, or continue training; returns the folder with the checkpoints."""
    return run_program(config, PROGRAM, config.folder("logs") / "gpt", compared(config, "objective"), train)


def train(context: RunContext) -> int:
    """Fit the model to windows of all stores; returns the number of updates."""
    config, spec, tasks = context.config, context.spec(), context.tasks
    context.check_memory(fitting_gpt(config, spec, context.ranks.size), config.model)
    model = GPT(config.model, spec, config.trainer.activation_checkpointing).to(context.device, dtype_of(config))
    return context.fit(
        model,
        OBJECTIVES[config.objective.name](config.objective, spec),
        context.windows(config.objective),
        InContextEvaluator(config, tasks["development"]),
        config.trainer.num_iterations,
    )


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.train_gpt", __doc__)
