"""Options of offline RL: those of all programs, and of critics and the policies that are extracted from them."""

from collections.abc import Iterator
from typing import ClassVar

from icrl.app.root import Config, rule
from icrl.config.options import group
from icrl.extensions.offline_rl.awr import AwrConfig
from icrl.extensions.offline_rl.critic import CriticConfig, DecoderConfig, EncoderConfig


class OfflineConfig(Config):
    """Options of all programs, and those of offline RL."""

    page: ClassVar[str] = "offline"

    encoder: EncoderConfig = group(EncoderConfig, "the trunk of a critic", "ilql")
    decoder: DecoderConfig = group(DecoderConfig, "the heads of a critic", "ilql")
    critic: CriticConfig = group(CriticConfig, "values, and how they are learned", "ilql")
    awr: AwrConfig = group(AwrConfig, "extraction of a policy from values", "awr")


@rule
def _in_policies(config: Config) -> Iterator[str]:
    """Conflicts of policies."""
    if config.policy.model == "critic" and not config.policy.advantage_scale:
        yield "$policy.model acts on the critic alone, so $policy.advantage_scale must be above 0"
    if config.policy.advantage_scale and config.model.head != "auto":
        yield "$policy.advantage_scale guides a model with model.head=auto, not $model.head: give 0"


@rule
def _in_critic(config: Config) -> Iterator[str]:
    if not isinstance(config, OfflineConfig):
        return
    model, encoder, length = config.model, config.encoder, config.trainer.mini_batch_length
    if encoder.position == "learned" and 0 < length < model.context_len:
        yield "$trainer.mini_batch_length leaves positions untrained with $encoder.position and $model.context_len"
    if encoder.position == "rope" and model.trunk != "transformer":
        yield "$encoder.position needs attention, whose queries and keys it rotates: $model.trunk has none"
    if encoder.position == "env_time" and not model.add_env_time:
        yield "$encoder.position needs the embedding that $model.add_env_time leaves out"
