"""Offline RL: extract a policy from frozen Q and V by advantage-weighted regression (AWR).

python -m src.extract_policy [KEY=VALUE ...]      logs/<run>/ilql/ + histories/ -> logs/<name>/awr/

`python -m src.evaluate policy.model=awr` evaluates it in context.
"""

from pathlib import Path

import torch

from icrl.contracts import ConfigError, Json
from icrl.evaluation.trained import InContextEvaluator
from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.critics import check_critic, check_rows, load_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import make_gpt
from icrl.runs.device import dtype_of
from icrl.training.fit import fit
from icrl.training.program import UNWEIGHTED, compared, open_run

OPTIONS = OfflineConfig
LARGE = "trainer.mini_batch_size, model.context_len, model.embed_dim"
COMPARED = ("awr",)  # groups of options that must be the same for a model
SEARCHED = ("2 awr", "reward per env step in later episodes")  # options, and the value of a run


def main(config: OfflineConfig) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    check_rows(config)
    folder = config.folder("logs") / "awr"
    critic, about = load_critic(config, torch.device("cpu"))

    def inputs(before: Json | None) -> Json:
        if before and before["inputs"].get("critic") != about["state_sha256"]:
            raise ConfigError(f"{folder} was extracted from another critic: give another name=")
        warm = before["inputs"].get("warm_start") if before else {}  # earlier versions could start from trained models
        return {"critic": about["state_sha256"], "warm_start": warm}

    with open_run(config, "extract_policy", folder, compared(config, *COMPARED), inputs) as context:
        if context:
            check_critic(config, about["description"], context.description)
            mixture = context.windows(UNWEIGHTED)
            model = make_gpt(config.model, context.spec(), config.trainer.activation_checkpointing)
            model = model.to(context.device, dtype_of(config))
            objective = AdvantageWeightedRegression(config.awr, critic.target.to(context.device))
            evaluator = InContextEvaluator(config, context.tasks["development"])
            fit(context, model, objective, context.batches(mixture), evaluator)
    return folder
