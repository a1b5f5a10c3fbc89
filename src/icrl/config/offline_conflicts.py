"""Conflicts among the options of offline reinforcement learning, and with what plays in context."""

from typing import TYPE_CHECKING

from icrl.config.source_conflicts import Conflicts

if TYPE_CHECKING:
    from icrl.config.root import Config

RESERVED = (
    "gpt",
    "ilql",
    "critic",
    "source",
    "search",
    "evals",
    "in_context",
)  # folders of a run, and names of other players


IDLE_EXPECTILE = 0.5


def of_critic(config: "Config") -> Conflicts:
    """Of what values are and how they are learned."""
    critic = config.critic
    expectile, maximum = "critic.backup=expectile", "critic.backup=max"
    fixed = critic.value_trunk_grad == "none" and (critic.separate_value or not critic.imitation_scaling)
    random_trunk = config.encoder.load_from == critic.initial_model == critic.initial_model_prefix == "none"
    return [
        (
            critic.backup == "expectile" and not critic.v_loss_scaling,
            f"critic.v_loss_scaling=0 never learns V, which {expectile} needs",
        ),
        (
            critic.backup == "max" and critic.v_loss_scaling > 0,
            f"critic.v_loss_scaling={critic.v_loss_scaling}: {maximum} has no V to learn: must be 0",
        ),
        (
            critic.backup == "max" and critic.expectile != IDLE_EXPECTILE,
            f"critic.expectile={critic.expectile}: {maximum} has no V to learn: must be {IDLE_EXPECTILE}",
        ),
        (
            critic.backup == "max" and critic.separate_value,
            f"critic.separate_value=true: with {maximum} V is the largest Q and needs no trunk of its own",
        ),
        (
            critic.discount_per == "episode" and critic.horizon == "episode",
            "critic.discount_per=episode counts episodes; with critic.horizon=episode the return ends with the first",
        ),
        (
            fixed and random_trunk,
            f"critic.value_trunk_grad=none with critic.imitation_scaling={critic.imitation_scaling} and "
            f"critic.separate_value={str(critic.separate_value).lower()} leaves a trunk that nothing trains; give a "
            "trained one by encoder.load_from",
        ),
    ]


def of_start(config: "Config") -> Conflicts:
    """Of what a critic starts from."""
    critic = config.critic
    starts = {"encoder.load_from": config.encoder.load_from, "decoder.load_from": config.decoder.load_from}
    named = [(name, path) for name, path in starts.items() if path != "none"]
    model, prefix = critic.initial_model, critic.initial_model_prefix
    return [
        *(
            (
                model != "none",
                f"critic.initial_model={model} has what {name}={path} would give: one of them must be none",
            )
            for name, path in named
        ),
        *(
            (
                prefix != "none",
                f"critic.initial_model_prefix={prefix} has what {name}={path} would give: one of them must be none",
            )
            for name, path in [*named, ("critic.initial_model", model)]
            if path != "none"
        ),
        (
            critic.initial_model_index >= 0 and prefix == "none",
            f"critic.initial_model_index={critic.initial_model_index} needs critic.initial_model_prefix",
        ),
        (
            config.optimizer.initialize and prefix == "none",
            "optimizer.initialize=true is about the state in critic.initial_model_prefix, which is none",
        ),
    ]


def of_decoder(config: "Config") -> Conflicts:
    """Of the form of a critic's heads."""
    layers, width, dropout = config.decoder.num_layers, config.decoder.ff_dim, config.decoder.dropout
    return [
        (
            layers == 1 and width > 0,
            f"decoder.ff_dim={width}: decoder.num_layers=1 has nothing between its layers; must be 0",
        ),
        (
            layers == 1 and dropout > 0,
            f"decoder.dropout={dropout}: decoder.num_layers=1 has nothing between its layers; must be 0",
        ),
        (
            layers > 1 and not width,
            f"decoder.ff_dim=0: decoder.num_layers={layers} needs a width between them",
        ),
    ]


def of_encoder(config: "Config") -> Conflicts:
    """Of the form of a critic's trunk, with what is the model's."""
    encoder, model, length = config.encoder, config.model, config.trainer.mini_batch_length
    heads, width, position = encoder.num_heads, encoder.embed_dim, encoder.position
    return [
        (width % heads != 0, f"encoder.num_heads={heads} must divide encoder.embed_dim={width}"),
        (
            position == "rope" and width // heads % 2 == 1,
            f"encoder.position=rope needs an even encoder.embed_dim / encoder.num_heads, not {width} / {heads}",
        ),
        (
            position == "env_time" and not model.add_env_time,
            "encoder.position=env_time is the env time embedding, which model.add_env_time=false leaves out",
        ),
        (
            position == "learned" and 0 < length < model.context_len,
            f"trainer.mini_batch_length={length} leaves positions untrained with encoder.position=learned and "
            f"model.context_len={model.context_len}",
        ),
    ]


def of_extraction(config: "Config") -> Conflicts:
    """Of the extracted policy, and of who plays."""
    awr, policy = config.awr, config.policy
    temperature, inverse = awr.temperature, awr.inverse_temperature
    name = awr.experiment_name
    parts = config.trainer.gradient_accumulation_steps
    return [
        (
            awr.normalize != "none" and parts > 1,
            f"awr.normalize={awr.normalize} is over a whole batch, and trainer.gradient_accumulation_steps={parts} "
            "works it off in parts",
        ),
        (
            temperature is not None and inverse is not None,
            f"awr.temperature={temperature} and awr.inverse_temperature={inverse}: one of them must be null",
        ),
        (
            temperature is None and inverse is None,
            "awr.temperature=null and awr.inverse_temperature=null: one of them must be a number",
        ),
        (
            name in RESERVED or name.startswith("evaluation"),
            f"awr.experiment_name={name} is the folder of something else; none of {', '.join(RESERVED)}, evaluation...",
        ),
        (
            policy.model not in ("gpt", "critic", name),
            f"policy.model={policy.model}: must be gpt, critic or awr.experiment_name={name}",
        ),
        (
            policy.model == "critic" and not policy.advantage_scale,
            "policy.advantage_scale=0 asks no critic, and policy.model=critic has nothing else to act on",
        ),
    ]
