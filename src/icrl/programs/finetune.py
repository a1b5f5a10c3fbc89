"""Reinforcement fine-tuning in context: policy gradients over whole trials on the training tasks of a model.

python -m src.finetune [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/<finetune.experiment_name>/

Data parallel: torchrun --standalone --nproc-per-node 2 -m src.finetune [KEY=VALUE ...]

`python -m src.evaluate policy.model=<finetune.experiment_name>` evaluates the model. `finetune.start=none
finetune.kl_coefficient=0` trains from random weights (RL^2). The split of tasks is that of the histories.
"""

from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.config.options import refuse, replace
from icrl.contracts import ConfigError, Json
from icrl.data.windows import check_stores
from icrl.envs import make_env
from icrl.envs.core import Family, TensorEnv, check_playable
from icrl.evaluation.kinds import plain_gpt
from icrl.evaluation.trained import evaluator_of
from icrl.nn.embeddings import ObsEmbedding
from icrl.nn.encoders import OF_ROWS
from icrl.nn.gpt import GPT, check_discrete
from icrl.runs.device import dtype_of
from icrl.runs.files import check_same
from icrl.training.finished import open_finished
from icrl.training.fit import fit
from icrl.training.needs import fitting_gpt, playing
from icrl.training.optimizers import MuonConfig
from icrl.training.policy_gradient import PolicyGradient
from icrl.training.program import RunContext, compared, open_run
from icrl.training.trials import Trials

LARGE = "finetune.num_streams, finetune.trial_steps, model.embed_dim"

_PLAYED = ("finetune.num_streams", "finetune.trial_steps")


def main(config: Config) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    check(config)
    options, folder, start = config.finetune, config.folder("logs") / config.finetune.experiment_name, None
    if options.start == "gpt":
        start = open_finished(config.run_folder / "gpt", "last", "train_gpt", torch.device("cpu"))
        where = f"the model of run={config.run}"
        check_same(config, start[1]["description"]["config"], ("env", "tasks", "data", "model"), where)

    def inputs(before: Json | None) -> Json:
        model = start[1]["state_sha256"] if start else "none"
        if before and before["inputs"].get("start") != model:
            raise ConfigError(f"{folder} started from another model: give another finetune.experiment_name= or name=")
        return {"start": model}

    with open_run(config, "finetune", folder, compared(config, "objective", "finetune"), inputs, "finetune") as context:
        if context:
            if start:
                check_stores(context.stores, start[1]["description"]["histories"], config.run_folder)
            with closing(make_env(config.env, context.device)) as env:
                split, all_tasks = context.tasks, env.all_tasks().to(context.device)
                tasks = all_tasks[[task for task in split["train"] if task not in split["development"]]]
                hidden = all_tasks[[*split["held_out"], *split["development"]]]
                run, family = _adapted(context, env, tasks), _family(config, env, hidden)
                spec = family.env.spec if family else env.spec
                model, first = GPT(config.model, spec).to(context.device, dtype_of(config)), None
                if start:
                    first = plain_gpt(config, spec, start[0]["model"], context.device).eval().requires_grad_(False)
                    model.load_state_dict(first.state_dict())
                near = first if options.kl_coefficient else None
                trials = Trials(options, env, tasks, model, near, config.seed, context.ranks, family)
                objective = PolicyGradient(options, spec, lambda: trials.metrics, trials.clock)
                updates = options.num_iterations * trials.updates_per_iteration
                evaluator = evaluator_of(context, config.objective)
                parts = {"actor": trials}
                fit(run, model, objective, trials.batch_at, evaluator, num_updates=updates, parts=parts)
    return folder


def check(config: Config) -> None:
    """Raise `ConfigError` for options of trials that the world or the model does not allow; needs no histories."""
    check_playable(config.env)
    options, model = config.finetune, config.model
    steps, length = options.trial_steps, model.context_len
    longer = f"finetune.trial_steps={steps} is longer than model.context_len={length}, and an update reads whole trials"
    refuse(steps > length, f"{longer}: lower it, or train with a longer model.context_len")
    if not options.num_rooms:
        return
    given, encoding = f"finetune.num_rooms={options.num_rooms}", model.obs_encoding
    sizes = f"finetune.room_sizes={options.room_sizes}: must be at most model.max_size={model.max_size}"
    refuse(options.room_sizes[1] > model.max_size, sizes)
    read = f"needs model.obs_encoding={', '.join(OF_ROWS[:-1])} or {OF_ROWS[-1]}, not {encoding}"
    refuse(encoding not in OF_ROWS, f"{given} {read}: give one, or finetune.num_rooms=0")
    with closing(make_env(config.env)) as env:
        none = f"{given}: env.name={config.env.name} has no other rooms with these options; give finetune.num_rooms=0"
        refuse(_family(config, env, env.all_tasks()[:0]) is None, none)


def _family(config: Config, env: TensorEnv, hidden: Tensor) -> Family | None:
    """Family of rooms that trials visit beside `env`, without the goals of the tasks `hidden` `[N, task_dim]`; None
    without `finetune.num_rooms`."""
    options, model = config.finetune, config.model
    corner = ObsEmbedding(model, env.spec).slack // 2
    least, most = options.room_sizes
    return env.family(model.max_size, corner, (least, most), hidden) if options.num_rooms else None


def _adapted(context: RunContext, env: TensorEnv, tasks: Tensor) -> RunContext:
    """Context with the optimizer, batches and precision of policy gradients on the training `tasks` `[N, task_dim]` of
    `env`. Raises `ConfigError` if there are too few streams, or too little memory."""
    config, options, spec = context.config, context.config.finetune, env.spec
    check_discrete("finetune", spec)
    unsolvable = f"finetune.num_unsolvable={options.num_unsolvable}"
    none = options.num_unsolvable and env.unsolvable(tasks) is None
    refuse(none, f"{unsolvable}: env.name={config.env.name} has no tasks without reward; give 0")
    num_streams = (options.drawn_of(len(tasks)) + options.num_unsolvable + options.num_rooms) * options.num_streams
    parts = f"finetune.num_mini_batches={options.num_mini_batches}"
    refuse(options.num_mini_batches > num_streams, f"{parts}: must be at most {num_streams}, the streams of all tasks")
    ranks, streams = context.ranks.size, f"finetune.num_streams={options.num_streams}"
    played = f"each of {ranks} processes plays as many of the {num_streams} streams of all tasks"
    refuse(num_streams % ranks, f"{streams}: {played}; give a multiple of {ranks}")
    refuse(options.num_mini_batches * ranks > num_streams, f"{parts}: must be at most {num_streams // ranks}: {played}")
    many = "an observation of this world has many numbers, and hardly comes twice; give finetune.bonus=0"
    refuse(spec.obs_shape and options.bonus, f"finetune.bonus={options.bonus}: {many}")
    size = -(-num_streams // options.num_mini_batches)
    batches = {"mini_batch_size": size, "mini_batch_length": options.trial_steps}
    rates = {"learning_rate": options.learning_rate, "max_gradient_norm": options.max_gradient_norm}
    adapted = replace(
        config,
        optimizer=MuonConfig(weight_decay=0.0, **rates),
        # Blocks are recomputed only in training mode, which would also turn dropout on.
        trainer=replace(config.trainer, activation_checkpointing=False, **batches),
    )
    context = context._replace(config=adapted)
    episodes = -(-options.trial_steps // spec.max_episode_steps)
    needs = playing(adapted, config.model, spec, num_streams // ranks, episodes, context.device, _PLAYED)
    context.check_memory([*fitting_gpt(adapted, spec, ranks), *needs], config.model)
    return context
