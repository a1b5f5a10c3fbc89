"""Updates of the three programs of offline RL: imitation, a critic, and the extraction of a policy from it.

    python -m benchmarks.extensions.offline_rl.offline [KEY=VALUE ...]

On one thread, with the options of `study=offline` that matter here, on random windows. The study gives each method the
number of updates that makes all methods cost the same. Options in float32, or of another room, show how far that holds
there.
"""

import sys
import time
from functools import partial

import torch

from benchmarks.measure import Report, side_by_side
from benchmarks.stage_two import our_update, random_batch, repeated, update_of
from icrl.app.compose import compose_config
from icrl.envs import make_env
from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.critics import make_critic
from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import GPT

UPDATES, ROUNDS = 5, 9
OPTIONS = ("env.size=7", "model.context_len=80", "model.obs_encoding=coordinates", "trainer.mini_batch_length=0")
OPTIONS += ("objective.weighting=none", "device.amp_dtype=bfloat16", "data.num_development_tasks=8")


def main(overrides: list[str]) -> None:
    torch.set_num_threads(1)
    config = compose_config(OfflineConfig, [*OPTIONS, *overrides])
    spec = make_env(config.env).spec
    batch, critic, frozen = random_batch(config, spec), make_critic(config, spec), make_critic(config, spec).target
    extraction = AdvantageWeightedRegression(config.awr, frozen)
    ways = {
        "imitation (AD)": our_update(config, spec, batch),
        "critic (ILQL)": update_of(critic, ImplicitQLearning(critic), config, batch, critic.after_update),
        "extraction (AWR)": update_of(GPT(config.model, spec), extraction, config, batch),
    }
    work = {name: partial(repeated, update, UPDATES) for name, update in ways.items()}
    report = Report("extensions.offline_rl.offline", overrides)
    report.show("Update", side_by_side(work, ROUNDS, time.process_time), "update", "imitation (AD)")


if __name__ == "__main__":
    main(sys.argv[1:])
