"""Offline RL: train a deterministic actor and twin Q in context on windows of learning histories (TD3+BC).

python -m src.train_td3_bc objective=td3_bc [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/td3_bc/

`python -m src.evaluate objective=td3_bc policy.model=td3_bc` evaluates the actor in context.
"""

from pathlib import Path

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.data.windows import moments_of
from icrl.evaluation.trained import InContextEvaluator
from icrl.extensions.td3_bc.acting import actor_of
from icrl.extensions.td3_bc.networks import ActorAndCritics
from icrl.extensions.td3_bc.objective import TD3BC
from icrl.nn.encoders import set_moments
from icrl.runs.device import dtype_of
from icrl.training.fit import fit
from icrl.training.program import UNWEIGHTED, check_stage_two, compared, open_run

LARGE = "trainer.mini_batch_size, model.context_len, model.embed_dim"


def main(config: Config) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    refuse(config.objective.name != "td3_bc", f"objective.name={config.objective.name}: give objective=td3_bc")
    weighting, head = config.objective.weighting, config.model.head
    refuse(weighting != "none", f"objective.weighting={weighting}: TD3+BC weights all steps alike; must be none")
    unused = f"model.head={head}: the actions of TD3+BC are a squashed mean; must be auto or gaussian"
    refuse(head not in ("auto", "gaussian"), unused)
    folder = config.folder("logs") / "td3_bc"
    with open_run(config, "train_td3_bc", folder, compared(config, "objective")) as context:
        if context:
            spec = context.spec()
            check_stage_two(config, spec)
            mixture = context.windows(UNWEIGHTED)
            networks = ActorAndCritics(config.model, spec, config.trainer.activation_checkpointing)
            networks = networks.to(context.device, dtype_of(config))
            set_moments(networks, moments := moments_of(mixture))
            objective = TD3BC(config.objective, spec, networks, moments.reward_std)
            evaluator = InContextEvaluator(config, context.tasks["development"], actor_of)
            fit(context, networks, objective, context.batches(mixture), evaluator, after_step=networks.after_update)
    return folder
