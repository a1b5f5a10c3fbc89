"""Offline RL: extract a policy from frozen Q and V, by imitation of what was better than V expects (AWR).

python -m src.extract_policy [KEY=VALUE ...]      logs/<run>/ilql/ + histories/ -> logs/<name>/<awr.experiment_name>/

`python -m src.evaluate policy.model=<awr.experiment_name>` plays it in context.
"""

from pathlib import Path

import torch

from icrl.config.command_line import run_stage
from icrl.config.root import Config
from icrl.contracts import ConfigError, Json
from icrl.data.mixture import described
from icrl.evaluation.evaluators import InContextEvaluator
from icrl.nn.critic import Critic
from icrl.nn.gpt import GPT
from icrl.objectives.awr import AdvantageWeightedRegression
from icrl.runs import checkpoint
from icrl.runs.device import dtype_of, recorded
from icrl.training.critics import check_critic, load_critic
from icrl.training.needs import fitting_gpt
from icrl.training.program import RunContext, compared, run_program, unweighted
from icrl.training.warm_start import checksums, load_trunk

PROGRAM = "extract_policy"


def main(config: Config) -> Path:
    """Train, or continue training; returns the folder with the checkpoints."""
    folder = config.folder("logs") / config.awr.experiment_name
    if not config.awr.resume and checkpoint.sidecars(folder, "last"):
        raise ConfigError(f"awr.resume=false: {folder} has an earlier run; resume it, or give another name")
    critic, about = load_critic(config, torch.device("cpu"))

    def check(before: Json) -> None:
        if before["inputs"].get("critic") != about["state_sha256"]:
            raise ConfigError(f"{folder} was extracted from another critic: give another awr.experiment_name= or name=")

    def inputs(before: Json | None) -> Json:
        start = before["inputs"].get("warm_start") if before else checksums(config, ["awr.initial_encoder"])
        return {"critic": about["state_sha256"], "warm_start": start}

    return run_program(
        config, PROGRAM, folder, compared(config, "awr"), lambda place: train(place, critic, about), check, inputs
    )


def train(context: RunContext, critic: Critic, about: Json) -> int:
    """Fit the policy to windows of all stores; returns the number of updates."""
    config, spec, tasks, device = context.config, context.spec(), context.tasks, context.device
    check_critic(config, about["description"], {"config": recorded(config), "histories": described(context.stores)})
    if config.awr.normalize != "none" and context.ranks.size > 1:
        raise ConfigError(
            f"awr.normalize={config.awr.normalize} is over a whole batch; {context.ranks.size} processes share it"
        )
    num_frozen = sum(parameter.numel() for parameter in critic.target.parameters())
    context.check_memory(fitting_gpt(config, spec, context.ranks.size, num_frozen), config.model)
    mixture = context.windows(unweighted(config.objective))
    model = GPT(config.model, spec, config.trainer.activation_checkpointing).to(device, dtype_of(config))
    if (path := config.awr.initial_encoder) != "none":
        load_trunk("awr.initial_encoder", path, [model], tasks, device)
    updates = config.trainer.num_iterations
    if config.awr.num_epochs:
        updates = -(-config.awr.num_epochs * mixture.num_windows // config.trainer.mini_batch_size)
    return context.fit(
        model,
        AdvantageWeightedRegression(config.awr, critic.target.to(device)),
        mixture,
        InContextEvaluator(config, tasks["development"]),
        updates,
    )


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.extract_policy", __doc__ or "")
