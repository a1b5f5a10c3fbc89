"""The options of offline reinforcement learning: critics, and the policies that are extracted from them."""

from typing import Literal, Self

from pydantic import model_validator

from icrl.config.options import Name, Options, PathName, PluginName, option, refuse

RESERVED = ("gpt", "ilql", "critic", "source", "search", "evals", "in_context")  # folders of a run, names of policies
_MEAN = 0.5  # the expectile that is the mean


class EncoderConfig(Options):
    """The trunk of a critic; what a token is, and how many steps are read, is the model's."""

    position: Literal["env_time", "learned", "sinusoidal", "rope", "none"] = option(
        "learned", "position code: env time step embedding, learned absolute, sinusoidal, rotary, or none"
    )
    embed_dim: int = option(512, "width of the residual stream", ge=1, le=2**16)
    num_heads: int = option(8, "attention heads; must divide encoder.embed_dim", ge=1, le=2**16)
    ff_dim: int = option(2048, "width of the feed-forward layer", ge=1, le=2**20)
    activation: Literal["relu", "gelu"] = option("gelu", "of the feed-forward layer")
    dropout: float = option(0.1, "dropout on embeddings, attention weights and what a block adds", ge=0, le=0.99)
    num_layers: int = option(8, "transformer blocks", ge=1, le=1000)
    load_from: PathName = option("none", "a checkpoint (.pt) whose trunk a new critic starts from (none: at random)")

    @model_validator(mode="after")
    def _check(self) -> Self:
        heads, width = self.num_heads, self.embed_dim
        refuse(width % heads != 0, f"encoder.num_heads={heads} must divide encoder.embed_dim={width}")
        refuse(
            self.position == "rope" and width // heads % 2 == 1,
            f"encoder.position=rope needs an even encoder.embed_dim / encoder.num_heads, not {width} / {heads}",
        )
        return self


class DecoderConfig(Options):
    """The heads of a critic: each of Q1, Q2 and V."""

    num_layers: int = option(2, "linear layers of a head", ge=1, le=1000)
    ff_dim: int = option(256, "width between them (0: a single layer has none)", ge=0, le=2**20)
    activation: Literal["relu", "gelu"] = option("gelu", "between them")
    dropout: float = option(0.0, "dropout between them", ge=0, le=0.99)
    load_from: PathName = option(
        "none", "a checkpoint (.pt) of a critic whose heads a new one starts from (none: at random)"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("ff_dim", "dropout"):
            refuse(
                self.num_layers == 1 and getattr(self, name) > 0,
                f"decoder.{name}={getattr(self, name)}: decoder.num_layers=1 has nothing between its layers; must be 0",
            )
        refuse(
            self.num_layers > 1 and not self.ff_dim,
            f"decoder.ff_dim=0: decoder.num_layers={self.num_layers} needs a width between them",
        )
        return self


class CriticConfig(Options):
    """What values are, and how they are learned."""

    backup: Literal["expectile", "max"] = option(
        "expectile",
        "value of the next observation: expectile: V, an expectile of Q over the actions that were taken; "
        "max: the largest Q",
    )
    separate_value: bool = option(False, "V has a trunk of its own (IQL)")
    expectile: float = option(0.8, "which expectile V is: 0.5 the mean, towards 1 the maximum", gt=0, le=0.9999)
    discount_factor: float = option(0.9, "discount factor of the return", gt=0, le=1)
    discount_per: Literal["step", "episode"] = option("step", "what the discount factor counts")
    horizon: Literal["episode", "across_episodes"] = option(
        "episode",
        "episode: the return ends with the episode; across_episodes: it goes on in the next one, so that finding out "
        "is worth something",
    )
    return_lambda: float = option(
        0.9,
        "lambda of the returns that Q learns: 0 bootstraps after one step; towards 1 later, which is quicker, and "
        "values what the source went on to do",
        ge=0,
        le=1,
    )
    reward_plugin: PluginName = option(
        "identity",
        "the reward that is learned from: identity, step_penalty, distance, improvement, or a Python file that defines "
        "get_reward",
    )
    reward_scale: float = option(1.0, "what the reward is multiplied by", gt=0)
    q_loss_scaling: float = option(1.0, "weight of the TD loss of Q1 and Q2", gt=0)
    v_loss_scaling: float = option(1.0, "weight of the expectile loss of V", ge=0)
    conservative_scaling: float = option(0.0, "weight of the cross-entropy that pushes Q of other actions down", ge=0)
    imitation_scaling: float = option(0.0, "weight of a policy head's imitation loss (0: it has no policy head)", ge=0)
    value_trunk_grad: Literal["full", "none"] = option(
        "full", "whether the losses of values reach the trunk, or their heads alone"
    )
    target_update_interval: int = option(1, "updates between two moves of the targets", ge=1)
    target_update_rate: float = option(0.2, "how far the targets move towards the networks", gt=0, le=1)
    initial_model: PathName = option(
        "none", "a checkpoint (.pt) of a critic that a new one starts from (none: at random)"
    )
    initial_model_prefix: PathName = option(
        "none",
        "a folder of snapshots that a new run goes on from: model, targets, optimizer and count of updates (none: from "
        "the start)",
    )
    initial_model_index: int = option(-1, "the update of that snapshot (-1: the newest)", ge=-1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        maximum = self.backup == "max"
        refuse(
            not maximum and not self.v_loss_scaling,
            "critic.v_loss_scaling=0 never learns V, which critic.backup=expectile needs",
        )
        refuse(
            maximum and self.v_loss_scaling > 0,
            f"critic.v_loss_scaling={self.v_loss_scaling}: critic.backup=max has no V to learn: must be 0",
        )
        refuse(
            maximum and self.expectile != _MEAN,
            f"critic.expectile={self.expectile}: critic.backup=max has no V to learn: must be {_MEAN}",
        )
        refuse(
            maximum and self.separate_value,
            "critic.separate_value=true: with critic.backup=max V is the largest Q and needs no trunk of its own",
        )
        refuse(
            self.discount_per == "episode" and self.horizon == "episode",
            "critic.discount_per=episode counts episodes; with critic.horizon=episode the return ends with the first",
        )
        return self


class AwrConfig(Options):
    """Advantage-weighted policy extraction."""

    experiment_name: Name = option("awr", "folder of the policy under logs/<name>/, and what policy.model calls it")
    temperature: float | None = option(
        None, "what advantages are divided by (null: awr.inverse_temperature says)", gt=0
    )
    inverse_temperature: float | None = option(
        10.0, "what advantages are multiplied by; 0 clones (null: awr.temperature says)", ge=0
    )
    advantage_threshold: float = option(
        20.0, "the largest weight of a step: its logarithm clips what is raised to it", gt=0
    )
    normalize: Literal["none", "mean", "softmax"] = option(
        "none", "none; mean: divide weights by their mean over the batch; softmax: likewise, before they are clipped"
    )
    num_epochs: int = option(
        0, "as many updates as draw each window once, so many times (0: trainer.num_iterations says)", ge=0, le=10**6
    )
    initial_encoder: PathName = option(
        "none", "a checkpoint (.pt) whose trunk a new policy starts from (none: at random)"
    )
    resume: bool = option(
        True, "go on where an earlier run ended; else a folder that has one is an error", may_change=True
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        name, temperature, inverse = self.experiment_name, self.temperature, self.inverse_temperature
        refuse(
            temperature is not None and inverse is not None,
            f"awr.temperature={temperature} and awr.inverse_temperature={inverse}: one of them must be null",
        )
        refuse(
            temperature is None and inverse is None,
            "awr.temperature=null and awr.inverse_temperature=null: one of them must be a number",
        )
        refuse(
            name in RESERVED or name.startswith("evaluation"),
            f"awr.experiment_name={name} is the folder of something else; none of {', '.join(RESERVED)}, evaluation...",
        )
        return self
