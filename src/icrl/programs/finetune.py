"""Stage three: policy gradients over whole in-context trials on the training tasks of a model.

python -m src.finetune [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/finetuned/

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.finetune [KEY=VALUE ...]

`python -m src.evaluate policy.model=finetuned` evaluates the model. `finetune.start=none` trains from random weights
(RL^2). The split of tasks is that of the histories.
"""

from contextlib import closing
from pathlib import Path

import torch

from icrl.app.root import Config
from icrl.contracts import ConfigError, Json
from icrl.data.windows import check_stores, recorded_moments
from icrl.envs import make_env
from icrl.evaluation.kinds import plain_gpt
from icrl.evaluation.trained import InContextEvaluator
from icrl.nn.encoders import set_moments
from icrl.nn.gpt import make_gpt
from icrl.runs.checkpoint import open_model
from icrl.runs.device import dtype_of
from icrl.runs.files import check_same
from icrl.training.fit import fit
from icrl.training.policy_gradient import CRITICS, PolicyGradient
from icrl.training.program import compared, open_run
from icrl.training.trials import Trials, check_trials, rooms_beside, trial_context

LARGE = "finetune.num_streams, finetune.trial_steps, model.embed_dim"


def main(config: Config) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    check_trials(config)
    options, folder, start = config.finetune, config.folder("logs") / "finetuned", None
    if options.start == "gpt":
        start = open_model(config.run_folder / "gpt", "last", "train_gpt", torch.device("cpu"))
        where = f"the model of run={config.run}"
        check_same(config, start[1]["description"]["config"], ("env", "tasks", "data", "model"), where)

    def inputs(before: Json | None) -> Json:
        model = start[1]["state_sha256"] if start else "none"
        if before and before["inputs"].get("start") != model:
            raise ConfigError(f"{folder} started from another model: give another name=")
        return {"start": model}

    with open_run(config, "finetune", folder, compared(config, "objective", "finetune"), inputs, "finetune") as context:
        if context:
            if start:
                check_stores(context.stores, start[1]["description"]["histories"], config.run_folder)
            with closing(make_env(config.env, context.device)) as env, closing(env.in_workers()) as world:
                split, all_tasks = context.tasks, env.all_tasks().to(context.device)
                learned = [task for task in split["train"] if task not in split["development"]]
                tasks = all_tasks[learned]
                hidden = all_tasks[[*split["held_out"], *split["development"]]]
                training = trial_context(context, len(tasks))
                family = rooms_beside(config, env, hidden)
                spec = (family or env).spec
                model = make_gpt(config.model, spec).to(context.device, dtype_of(config))
                if start:
                    model.load_state_dict(plain_gpt(config, spec, start[0]["model"], context.device).state_dict())
                elif not spec.is_discrete:
                    set_moments(model, recorded_moments(context.stores, learned))
                objective_class = PolicyGradient if options.gae_lambda is None else CRITICS[-1](model, context.ranks)
                device = config.device
                may_round = device.dtype == "float32" and device.amp_dtype in ("auto", "bfloat16")
                low_precision = spec.is_discrete and may_round
                trials = Trials(options, world, tasks, model, config.seed, context.ranks, family, low_precision)
                objective = objective_class(options, spec, model.head, lambda: trials.metrics, trials.clock)
                each, parts = options.num_mini_batches, {"actor": trials.actor}
                evaluator = InContextEvaluator(config, context.tasks["development"])
                fit(training, model, objective, trials.batch_at, evaluator, num_mini_batches=each, parts=parts)
    return folder
