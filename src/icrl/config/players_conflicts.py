"""Options of `train_players` that are fine alone and not together. Each message names both fields."""

from collections import Counter

from icrl.config.players_schema import LEARNED, PlayersConfig, RoleConfig
from icrl.config.source_conflicts import Conflicts
from icrl.config.training_conflicts import of_device
from icrl.contracts import ConfigError
from icrl.nn.layers import read_net_arch

_READ = {"adam": ("adam_beta1", "adam_beta2", "adam_eps"), "sgd": ("momentum",)}
_IDLE = {"momentum": 0.0, "adam_beta1": 0.0, "adam_beta2": 0.0, "adam_eps": 1e-8}


def check_players(config: PlayersConfig) -> None:
    """Raise `ConfigError` at the first conflict there is."""
    conflicts = of_device(config.device) + _of_run(config)
    for name, role in config.roles.items():
        read_net_arch(f"{name}.net_arch", role.net_arch)
    for name in config.learning:
        conflicts += _of_role(name, config.roles[name], config)
    for broken, message in conflicts:
        if broken:
            raise ConfigError(message)


def _of_run(config: PlayersConfig) -> Conflicts:
    evaluation, checkpoints, summaries = config.evaluation, config.checkpoints, config.summaries
    spaced = [
        ("evaluation.num_evals", evaluation.num_evals, "evaluation.eval_interval", evaluation.eval_interval),
        (
            *("checkpoints.num_checkpoints", checkpoints.num_checkpoints),
            *("checkpoints.checkpoint_interval", checkpoints.checkpoint_interval),
        ),
        (
            *("summaries.num_summaries", summaries.num_summaries),
            *("summaries.summary_interval", summaries.summary_interval),
        ),
    ]
    silent = not summaries.num_summaries and not summaries.summary_interval
    return [
        (
            not config.learning,
            f"host.player={config.host.player} and agent.player={config.agent.player}: nobody learns; one of them must "
            f"be {LEARNED}",
        ),
        *(
            (bool(number and interval), f"{first}={number} and {second}={interval}: one of them must be 0")
            for first, number, second, interval in spaced
        ),
        *(
            (
                on and silent,
                f"summaries.{name}=True shows nothing with summaries.num_summaries=0 and summaries.summary_interval=0",
            )
            for name, on in (("layerwise", summaries.layerwise), ("timing", summaries.timing))
        ),
        (
            config.device.amp_dtype != "none",
            f"device.amp_dtype={config.device.amp_dtype}: with train_players it must be none",
        ),
    ]


def _named_twice(opponents: list[str], config: PlayersConfig) -> str:
    """Who is, in words; the other side may be a fixed player that is named too."""
    fixed = {name: role.player for name, role in config.roles.items() if role.player != LEARNED}
    for player, times in Counter(fixed.get(one, one) for one in opponents).items():
        if times > 1:
            named = [f"{name}.player={player}" for name in opponents if fixed.get(name) == player]
            return ", ".join([f"{player} is there {times} times", *named])
    return ""


def _of_role(name: str, role: RoleConfig, config: PlayersConfig) -> Conflicts:
    games, size = config.training.num_games, config.replay.size
    layers = read_net_arch(f"{name}.net_arch", role.net_arch)
    opponents, options = role.opponents, vars(role)
    twice = _named_twice(opponents, config)
    lengths = {
        "initial_rollout_length": role.initial_rollout_length * len(opponents),
        "rollout_length": role.rollout_length,
    }
    return [
        (not opponents, f"{name}.opponents=[]: must have at least one name"),
        (bool(twice), f"{name}.opponents={opponents}: must name each player once, and {twice}"),
        *(
            (
                games * length > size,
                f"{name}.{option}={options[option]} gives {games * length} transitions with training.num_games={games} "
                f"and {name}.opponents={opponents}, more than replay.size={size} keeps",
            )
            for option, length in lengths.items()
        ),
        (
            role.batch_size < 2 and any(layer.normalization == "batch" for layer in layers),
            f"{name}.batch_size={role.batch_size} has no deviation for normalization: batch in {name}.net_arch; must "
            "be at least 2",
        ),
        *(
            (
                option not in _READ[role.optimizer] and options[option] != idle,
                f"{name}.{option}={options[option]} does nothing with {name}.optimizer={role.optimizer}: give "
                f"{name}.{option}={idle}",
            )
            for option, idle in _IDLE.items()
        ),
    ]
