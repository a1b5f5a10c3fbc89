"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/

Mixture of several histories: histories=[NAME,NAME] data.weights=[0.7,0.3] name=mixed

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.train_gpt [KEY=VALUE ...]
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from icrl.app.root import Config
from icrl.contracts import Batch, Objective
from icrl.data.windows import Mixture, moments_of
from icrl.evaluation.trained import InContextEvaluator
from icrl.nn.encoders import set_moments
from icrl.nn.gpt import GPT, make_gpt
from icrl.objectives import objective_class
from icrl.runs.device import dtype_of
from icrl.runs.evaluations import Evaluator
from icrl.training.fit import fit
from icrl.training.program import RunContext, check_stage_two, compared, open_run

LARGE = "trainer.mini_batch_size, model.context_len, model.embed_dim"
GROUPS = ("objective",)  # of options that must not change when a run resumes, beside those of every program


class Parts(NamedTuple):
    """Model, objective, batches and evaluator of a run, as `fit` takes them."""

    model: GPT
    objective: Objective
    batch_at: Callable[[int], Batch]
    evaluator: Evaluator


def main(config: Config) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    folder = config.folder("logs") / "gpt"
    with open_run(config, "train_gpt", folder, compared(config, *GROUPS)) as context:
        if context:
            fit(context, *prepared(context))
    return folder


def prepared(context: RunContext, mixture: Mixture | None = None) -> Parts:
    """Model, objective, batches and evaluator of a run, on its windows, which may be given as `mixture`."""
    config, spec = context.config, context.spec()
    check_stage_two(config, spec)
    model = make_gpt(config.model, spec, config.trainer.activation_checkpointing)
    model = model.to(context.device, dtype_of(config))
    objective = objective_class(config.objective.name)(config.objective, spec, model.head)
    if mixture is None:
        mixture = context.windows(config.objective)
    if not spec.is_discrete:
        set_moments(model, moments_of(mixture))  # of a new run; one that resumes has those of its checkpoint
    evaluator = InContextEvaluator(config, context.tasks["development"])
    return Parts(model, objective, context.batches(mixture), evaluator)
