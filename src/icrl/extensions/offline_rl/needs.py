"""Lower bounds on the memory that a critic needs in training."""

from icrl.extensions.offline_rl.critic import ValueNetwork
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import GPTConfig
from icrl.nn.networks import parameters_of
from icrl.runs.device import Need
from icrl.spaces import EnvSpec
from icrl.training.needs import META, model_training


def critic_training(config: OfflineConfig, trunk: GPTConfig, spec: EnvSpec, num_ranks: int) -> list[Need]:
    """Needs of training a critic whose trunks have the form `trunk`."""
    decoder = config.decoder
    with META:
        trained, frozen = parameters_of(ValueNetwork(trunk, decoder, config.critic, spec))
    frozen, heads = trained + 2 * frozen, 4 * decoder.ff_dim * (decoder.num_layers - 1)  # the target is frozen
    learns = config.critic.value_trunk_grad == "full"
    state, *others = model_training(config, trunk, spec, num_ranks, "encoder", trained, frozen, heads, learns=learns)
    if decoder.ff_dim > config.encoder.embed_dim:
        state = state._replace(options=("decoder.num_layers", "decoder.ff_dim"))
    return [state, *others]
