"""Registration of the objective, the policy and the program."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.td3_bc import objective
from icrl.extensions.td3_bc.acting import actor_kind
from icrl.runs import SHARED

__all__ = ["actor_kind", "objective"]

SHARED.add("train_td3_bc")


@rule
def _in_names(config: Config) -> Iterator[str]:
    if config.finetune.experiment_name == "td3_bc":
        yield "$finetune.experiment_name is the folder of TD3+BC: give finetuned"
