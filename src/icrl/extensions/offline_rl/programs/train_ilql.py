"""Offline RL: train Q1, Q2 and V in context on windows of learning histories.

python -m src.train_ilql [KEY=VALUE ...]      histories/<histories>/ -> logs/<name>/ilql/

critic=ilql|iql|cql chooses the loss of the values. `python -m src.extract_policy` extracts a policy from them,
`python -m src.evaluate policy.advantage_scale=B` lets them guide the model of stage two.
"""

import math
from functools import partial
from pathlib import Path

from icrl.contracts import Json
from icrl.evaluation.trained import InContextEvaluator
from icrl.extensions.offline_rl.acting import lone_critic
from icrl.extensions.offline_rl.critics import check_rows, make_critic
from icrl.extensions.offline_rl.ilql import ImplicitQLearning, value_bound
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.extensions.offline_rl.rewards import check_plugin, described, largest_reward, load_plugin, training_rewards
from icrl.runs.device import dtype_of
from icrl.training.fit import fit
from icrl.training.program import UNWEIGHTED, announce, compared, open_run

OPTIONS = OfflineConfig
LARGE = "trainer.mini_batch_size, model.context_len, encoder.embed_dim"
COMPARED = ("encoder", "decoder", "critic")  # groups of options that must be the same for a model
SEARCHED = ("2 ilql", "reward per env step in later episodes")  # options, and the value of a run


def main(config: OfflineConfig) -> Path:
    """Train, or resume training; returns the folder with the checkpoints."""
    check_rows(config)
    folder = config.folder("logs") / "ilql"
    groups = compared(config, *COMPARED, *(["awr"] if config.trainer.evaluate else []))
    plugin = load_plugin(config.critic.reward_plugin)

    def inputs(before: Json | None) -> Json:
        if before:
            check_plugin(plugin, before.get("reward_plugin"), folder)
        warm = before["inputs"].get("warm_start") if before else {}  # earlier versions could start from trained models
        return {"reward_plugin": plugin.sha256, "warm_start": warm}

    with open_run(config, "train_ilql", folder, groups, inputs) as context:
        if context:
            critic = make_critic(config, context.spec(), config.trainer.activation_checkpointing)
            critic = critic.to(context.device, dtype_of(config))
            mixture = context.windows(UNWEIGHTED, partial(training_rewards, plugin))
            bound = value_bound(config.critic, largest_reward(mixture))
            unbounded = "without a bound: critic.discount_factor below 1 would give one"
            limit = f"at most {bound:g}" if bound < math.inf else unbounded
            announce(f"values are {limit}, in absolute value", context.ranks)
            run = context._replace(description=context.description | {"reward_plugin": described(plugin)})
            objective, batches = ImplicitQLearning(critic, bound), context.batches(mixture)
            evaluator = InContextEvaluator(config, context.tasks["development"], lone_critic)
            fit(run, critic, objective, batches, evaluator, after_step=critic.after_update)
    return folder
