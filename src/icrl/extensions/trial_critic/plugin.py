"""Registration of the value head, and the rule of what fits it."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.trial_critic.critic import with_values
from icrl.training.policy_gradient import CRITICS

CRITICS.append(with_values)


@rule
def _whole_batches(config: Config) -> Iterator[str]:
    if config.finetune.gae_lambda is not None and config.trainer.gradient_accumulation_steps > 1:
        whole = "$finetune.gae_lambda needs the advantages of a whole batch at once, not"
        yield f"{whole} $trainer.gradient_accumulation_steps: more finetune.num_mini_batches also save memory"
