"""Training loop of the players of the polyhedra game: updates, matches during training, checkpoints, curves."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from icrl.config.schedules import Clock
from icrl.contracts import ConfigError, Json
from icrl.point_game.learners import Learner, Player, Stopwatch, make_learners, players_of_run
from icrl.point_game.options import PlayersConfig
from icrl.runs.checkpoint import FINISHED, Interval, check_run
from icrl.runs.device import recorded
from icrl.runs.divergence import FiniteCheck
from icrl.runs.files import Identity, check_owner, check_same, identity_of, read_owned, write_owned
from icrl.runs.metrics import MetricLogger, Progress, profiled
from icrl.runs.record import parameters_table, record_session
from icrl.runs.run_state import RunState

_CURE = "a lower {}.learning_rate or training.max_gradient_norm"
_MAY_DIFFER = ("name", "root", "num_threads", "checkpoints", "summaries")  # of a resumed run
_COMPARED = [name for name in PlayersConfig.model_fields if name not in _MAY_DIFFER]

FORM = {"matches": {str: {"rho": {"value": float, "low": float, "high": float}}}}  # of a file with matches, by pair

Evaluate = Callable[[Player, Player], Json]  # host and agent -> rho and other measures of each pair, by its name


def fit_players(config: PlayersConfig, evaluate: Evaluate, device: torch.device) -> tuple[Player, Player]:
    """Train the learning roles for `training.num_updates`, from the newest checkpoint if there is one; returns host and
    agent. A resumed run ends bit-identical to an uninterrupted one.

    `evaluate` is called with the current players. Raises `Stopped` when a signal asked the run to end, `DivergedError`,
    before the next save or evaluation, when a loss, a gradient or a parameter is not finite."""
    folder, options, total, evaluation = config.folder, config.summaries, config.training.num_updates, config.evaluation
    stopwatch, owner = Stopwatch(options.timing, device), owner_of(config)
    learners = make_learners(config, stopwatch, device)
    description = owner._asdict() | {"config": recorded(config)}
    run = RunState(folder, description, config.checkpoints, total, device)
    if run.resumed_from:
        check_continues(config, run.resumed_from["description"].get("config"))
        check_run(folder, run.resumed_from, owner)
    elif (folder / FINISHED).exists():
        raise ConfigError(f"{folder} is finished but has no checkpoints: restore them, or remove it")
    match_due = Interval(evaluation.num_evals, evaluation.eval_interval, total, end=True)
    players = players_of_run(config, learners)
    host, agent = players["host"], players["agent"]
    with ExitStack() as stack:
        progress = Progress("train_players", total, run.done, "update")
        logger = stack.enter_context(MetricLogger(folder, run.done, options, total, progress, run.done))
        run.loggers.append(logger)
        texts = record_session(config, folder, owner, run.done)
        for name, learner in learners.items():
            texts[f"parameters/{name}"] = parameters_table(learner.network, learner.optimizer)
            run.add(name, learner)
            if run.is_fresh:
                learner.begin()
        logger.texts(texts)
        curves = PlayerCurves(config, logger, stopwatch, run.done)
        networks: dict[str, nn.Module] = {name: learner.network for name, learner in learners.items()}
        finite = FiniteCheck("train_players", networks, lambda bad: _CURE.format(bad.partition(" ")[0]))
        run.before_save = lambda: finite.check(run.done)
        iteration_done = stack.enter_context(profiled(folder, options.profiled_iterations))
        stack.enter_context(run)
        for update in range(run.done, total + 1):
            run.done = update
            if not run.is_saved and match_due.due(update):
                run.before_save()
                curves.show_matches(evaluate(host, agent), update)
            run.save_if_due()
            if update == total:
                break
            clock = Clock(update / total, update, 0, update)
            metrics = {name: learner.learn(clock) for name, learner in learners.items()}
            watched = {f"{n} {key}": metrics[n][key] for n in metrics for key in ("loss", "gradient_norm")}
            finite.note(update + 1, watched)
            curves.show(metrics, learners, update + 1)
            iteration_done()
    if stopwatch.milliseconds:
        write_owned(folder / "milliseconds.json", owner, total, {"milliseconds": stopwatch.milliseconds})
    return host, agent


def owner_of(config: PlayersConfig) -> Identity:
    return identity_of("train_players", config, _COMPARED)


def check_continues(config: PlayersConfig, before: Json) -> None:
    """Raise `ConfigError` unless `config` may resume the run with the configuration `before`."""
    if isinstance(before, dict) and before.keys() == recorded(config).keys():  # else the identity is refused
        check_same(config, before, _COMPARED, str(config.folder))


class PlayerCurves:
    """Logger of curves over updates, log lines, and matches.json (match results by update)."""

    def __init__(self, config: PlayersConfig, logger: MetricLogger, stopwatch: Stopwatch, done: int) -> None:
        self._layerwise, self._logger, self._stopwatch = config.summaries.layerwise, logger, stopwatch
        self._owner, self._path, self._matches = owner_of(config), config.folder / "matches.json", dict[str, Json]()
        if done and self._path.exists():
            written, owner, _ = read_owned(self._path, {"matches": {str: FORM["matches"]}})
            check_owner(self._path, owner, self._owner)
            self._matches = written["matches"]

    def show(self, metrics: dict[str, dict[str, Tensor]], learners: dict[str, Learner], update: int) -> None:
        """Log the metrics of an update by learner."""
        self._logger.advance()
        if self._logger.due(update):
            for name, learner in learners.items():
                values = {key: value.item() for key, value in metrics[name].items()}
                fill = {"replay_fill": float(learner.replay.size), "moves": float(learner.moves)}
                self._logger.scalars(name, values | fill, update)
                if self._layerwise:
                    self._logger.scalars(f"{name}_layers", layers_of(learner.network), update)
            self._logger.scalars("milliseconds", self._stopwatch.milliseconds, update)
        if self._logger.line_due(update):
            self._logger.line({f"{name} loss": values["loss"].item() for name, values in metrics.items()})

    def show_matches(self, matches: Json, update: int) -> None:
        """Log the rho of each pair of players and statistics of its games."""
        self._matches[str(update)] = matches
        write_owned(self._path, self._owner, update, {"matches": self._matches})
        for pair, found in matches.items():
            rho = {"rho": found["rho"]["value"], "rho_low": found["rho"]["low"], "rho_high": found["rho"]["high"]}
            scalars = rho | {key: value for key, value in found.items() if isinstance(value, float)}
            self._logger.scalars(f"matches/{pair}", scalars, update)
            counts = {key: torch.tensor(value) for key, value in found.items() if isinstance(value, list)}
            drawn = {f"matches/{pair}/{key}": torch.arange(len(n)).repeat_interleave(n) for key, n in counts.items()}
            self._logger.histograms(drawn, update)


def layers_of(network: nn.Module) -> dict[str, float]:
    """Statistics of every parameter, `value_mean/<name>` and `value_std/<name>`, and of its gradient, if it has one, as
    `gradient_...`. A single number has no deviation."""
    found: dict[str, float] = {}
    for name, parameter in network.named_parameters():
        for kind, tensor in (("value", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None:
                found[f"{kind}_mean/{name}"] = tensor.mean().item()
                if tensor.numel() > 1:
                    found[f"{kind}_std/{name}"] = tensor.std().item()
    return found
