"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/

Mixture of several histories: histories=[NAME,NAME] data.weights=[0.7,0.3] name=mixed

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.train_gpt [KEY=VALUE ...]
"""

from pathlib import Path

from icrl.config.root import Config
from icrl.data.moments import moments_of
from icrl.evaluation.trained import evaluator_of
from icrl.nn.encoders import set_moments
from icrl.nn.gpt import GPT
from icrl.objectives import objective_class
from icrl.runs.device import dtype_of
from icrl.training.fit import fit
from icrl.training.needs import fitting_gpt
from icrl.training.program import check_stage_two, compared, open_run


def main(config: Config) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    folder = config.folder("logs") / "gpt"
    with open_run(config, "train_gpt", folder, compared(config, "objective")) as context:
        if context:
            spec = context.spec()
            check_stage_two(config, spec)
            context.check_memory(fitting_gpt(config, spec, context.ranks.size), config.model)
            model = GPT(config.model, spec, config.trainer.activation_checkpointing)
            model = model.to(context.device, dtype_of(config))
            objective = objective_class(config.objective.name)(config.objective, spec, model.head)
            mixture = context.windows(config.objective)
            if not spec.is_discrete:
                set_moments(model, moments_of(mixture))  # of a new run; one that resumes has those of its checkpoint
            fit(context, model, objective, context.batches(mixture), evaluator_of(context, config.objective))
    return folder
