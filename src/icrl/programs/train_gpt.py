"""Stage two: train the sequence model on windows of learning histories.

python -m src.train_gpt [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/gpt/

Mixture of several histories: histories=[NAME,NAME] data.weights=[0.7,0.3] name=mixed

Several seeds as one program: trainer.seeds=[0,1,2]      -> logs/<name>-seed0/gpt/, logs/<name>-seed1/gpt/, ...

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.train_gpt [KEY=VALUE ...]
"""

from contextlib import ExitStack
from pathlib import Path

from icrl.config.options import replace
from icrl.config.root import Config
from icrl.data.moments import moments_of
from icrl.data.windows import Mixture
from icrl.envs import make_env
from icrl.evaluation.trained import evaluator_of
from icrl.nn.encoders import set_moments
from icrl.nn.gpt import GPT
from icrl.objectives import objective_class
from icrl.runs.device import dtype_of
from icrl.runs.files import digest
from icrl.training.fit import Run, drive, fitting
from icrl.training.needs import fitting_gpt
from icrl.training.program import RunContext, check_stage_two, compared, open_run
from icrl.training.stack import check_together, fit_together

LARGE = "trainer.mini_batch_size, model.context_len, model.embed_dim"


def main(config: Config) -> Path:
    """Train, or resume training; returns the folder with the checkpoints, of several seeds that of the first one."""
    if config.trainer.seeds:
        check_together(config, make_env(config.env).spec)
    members, runs, shared = members_of(config), list[Run](), dict[str, Mixture]()
    with ExitStack() as stack:
        for member in members:
            folder = member.folder("logs") / "gpt"
            context = stack.enter_context(open_run(member, "train_gpt", folder, compared(member, "objective")))
            if context:
                runs.append(prepared(context, shared, len(members)))
        if config.trainer.seeds:
            fit_together(runs)
        else:
            drive(runs)
    return members[0].folder("logs") / "gpt"


def members_of(config: Config) -> list[Config]:
    """Configuration of each run: that of one, or one for each of `trainer.seeds`, whose evaluations take turns."""
    if not config.trainer.seeds:
        return [config]
    alone = {"trainer": replace(config.trainer, seeds=[]), "evals": replace(config.evals, async_eval=False)}
    return [replace(config, seed=seed, name=f"{config.name}-seed{seed}", **alone) for seed in config.trainer.seeds]


def prepared(context: RunContext, shared: dict[str, Mixture], num_models: int) -> Run:
    """Run of one of `num_models` models. Windows are in `shared`, because runs may have the same ones."""
    config, spec = context.config, context.spec()
    check_stage_two(config, spec)
    needs = fitting_gpt(config, spec, context.ranks.size)
    context.check_memory([need._replace(size=num_models * need.size) for need in needs], config.model)
    model = GPT(config.model, spec, config.trainer.activation_checkpointing)
    model = model.to(context.device, dtype_of(config))
    objective = objective_class(config.objective.name)(config.objective, spec, model.head)
    inputs = {"stores": context.description["histories"], "data": config.data.model_dump(), "tasks": context.tasks}
    if (key := digest(inputs)) not in shared:
        shared[key] = context.windows(config.objective)
    mixture = shared[key]
    if not spec.is_discrete:
        set_moments(model, moments_of(mixture))  # of a new run; one that resumes has those of its checkpoint
    return fitting(context, model, objective, context.batches(mixture), evaluator_of(context, config.objective))
