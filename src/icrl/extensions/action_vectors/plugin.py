"""Registration of the head, and the rule of its options."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.action_vectors.vectors import NAME, ActionVectors
from icrl.nn.heads import HEADS

HEADS[NAME] = ActionVectors


@rule
def _distilled_alone(config: Config) -> Iterator[str]:
    if config.model.head != NAME:
        return
    if config.policy.model == config.finetune.experiment_name:
        yield "$model.head cannot be trained by trials, and $policy.model is: give policy.model=gpt"
    if config.policy.advantage_scale:
        yield "$policy.advantage_scale guides a model with model.head=auto, not $model.head: give 0"
