"""The options of offline reinforcement learning: critics, and the policies that are extracted from them."""

from dataclasses import dataclass

from icrl.config.options import option


@dataclass
class EncoderConfig:
    """The trunk of a critic; what a token is, and how many steps are read, is the model's."""

    position: str = option(
        "position code: env time step embedding, learned absolute, sinusoidal, rotary, or none",
        choices=("env_time", "learned", "sinusoidal", "rope", "none"),
    )
    embed_dim: int = option("width of the residual stream", low=1, high=2**16)
    num_heads: int = option("attention heads; must divide encoder.embed_dim", low=1, high=2**16)
    ff_dim: int = option("width of the feed-forward layer", low=1, high=2**20)
    activation: str = option("of the feed-forward layer", choices=("relu", "gelu"))
    dropout: float = option("dropout on embeddings, attention weights and what a block adds", low=0, high=0.99)
    num_layers: int = option("transformer blocks", low=1, high=1000)
    load_from: str = option("a checkpoint (.pt) whose trunk a new critic starts from (none: at random)")


@dataclass
class DecoderConfig:
    """The heads of a critic: each of Q1, Q2 and V."""

    num_layers: int = option("linear layers of a head", low=1, high=1000)
    ff_dim: int = option("width between them (0: a single layer has none)", low=0, high=2**20)
    activation: str = option("between them", choices=("relu", "gelu"))
    dropout: float = option("dropout between them", low=0, high=0.99)
    load_from: str = option("a checkpoint (.pt) of a critic whose heads a new one starts from (none: at random)")


@dataclass
class CriticConfig:
    """What values are, and how they are learned."""

    backup: str = option(
        "value of the next observation: expectile: V, an expectile of Q over the actions that were taken; "
        "max: the largest Q",
        choices=("expectile", "max"),
    )
    separate_value: bool = option("V has a trunk of its own (IQL)")
    expectile: float = option("which expectile V is: 0.5 the mean, towards 1 the maximum", above=0, high=0.9999)
    discount_factor: float = option("discount factor of the return", above=0, high=1)
    discount_per: str = option("what the discount factor counts", choices=("step", "episode"))
    horizon: str = option(
        "episode: the return ends with the episode; across_episodes: it goes on in the next one, so that finding out "
        "is worth something",
        choices=("episode", "across_episodes"),
    )
    return_lambda: float = option(
        "lambda of the returns that Q learns: 0 bootstraps after one step; towards 1 later, which is quicker, and "
        "values what the source went on to do",
        low=0,
        high=1,
    )
    reward_plugin: str = option(
        "the reward that is learned from: identity, step_penalty, distance, improvement, or a Python file that defines "
        "get_reward"
    )
    reward_scale: float = option("what the reward is multiplied by", above=0)
    q_loss_scaling: float = option("weight of the TD loss of Q1 and Q2", above=0)
    v_loss_scaling: float = option("weight of the expectile loss of V", low=0)
    conservative_scaling: float = option("weight of the cross-entropy that pushes Q of other actions down", low=0)
    imitation_scaling: float = option("weight of a policy head's imitation loss (0: it has no policy head)", low=0)
    value_trunk_grad: str = option(
        "whether the losses of values reach the trunk, or their heads alone", choices=("full", "none")
    )
    target_update_interval: int = option("updates between two moves of the targets", low=1)
    target_update_rate: float = option("how far the targets move towards the networks", above=0, high=1)
    initial_model: str = option("a checkpoint (.pt) of a critic that a new one starts from (none: at random)")
    initial_model_prefix: str = option(
        "a folder of snapshots that a new run goes on from: model, targets, optimizer and count of updates (none: from "
        "the start)"
    )
    initial_model_index: int = option("the update of that snapshot (-1: the newest)", low=-1)


@dataclass
class AwrConfig:
    """Advantage-weighted policy extraction."""

    experiment_name: str = option("folder of the policy under logs/<name>/, and what policy.model calls it")
    temperature: float | None = option("what advantages are divided by (null: awr.inverse_temperature says)", above=0)
    inverse_temperature: float | None = option(
        "what advantages are multiplied by; 0 clones (null: awr.temperature says)", low=0
    )
    advantage_threshold: float = option(
        "the largest weight of a step: its logarithm clips what is raised to it", above=0
    )
    normalize: str = option(
        "none; mean: divide weights by their mean over the batch; softmax: likewise, before they are clipped",
        choices=("none", "mean", "softmax"),
    )
    num_epochs: int = option(
        "as many updates as draw each window once, so many times (0: trainer.num_iterations says)", low=0, high=10**6
    )
    initial_encoder: str = option("a checkpoint (.pt) whose trunk a new policy starts from (none: at random)")
    resume: bool = option("go on where an earlier run ended; else a folder that has one is an error", may_change=True)
