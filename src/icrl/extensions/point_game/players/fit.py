"""Training loop of the players of the polyhedra game: updates, matches during training, checkpoints, curves."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from icrl.config.options import refuse, walk
from icrl.config.schedules import Clock
from icrl.contracts import ConfigError, Json
from icrl.extensions.point_game.players.learners import Learner, Players, make_learners
from icrl.extensions.point_game.players.options import OTHER, PlayersConfig
from icrl.extensions.point_game.players.trained_players import saved_inputs
from icrl.runs.checkpoint import FINISHED, Interval, check, check_run, save, sidecars
from icrl.runs.divergence import FiniteCheck
from icrl.runs.files import Identity, check_owner, check_same, identity_of, read_owned, write_owned
from icrl.runs.metrics import INSPECTORS, MetricLogger, shown
from icrl.runs.processes import Progress
from icrl.runs.record import record_session
from icrl.runs.run_state import RunState

_TOLD = ("host_vs_agent", "host_vs_random", "random_pair_vs_agent")  # pairs in the progress line
_CURE = "a lower {}.learning_rate or training.max_gradient_norm"
_MAY_DIFFER = ("name", "root", "num_threads", "checkpoints", "summaries")  # of a resumed run
_COMPARED = [name for name in PlayersConfig.model_fields if name not in _MAY_DIFFER]

FORM = {"matches": {str: {"rho": {"value": float, "low": float, "high": float}}}}  # of a file with matches, by pair

Evaluate = Callable[[Players], Json]  # rho and other measures of each pair, by its name


def fit_players(config: PlayersConfig, evaluate: Evaluate, device: torch.device) -> Players:
    """Train the learning roles for `training.num_updates`, from the newest checkpoint if there is one; returns all
    players. A resumed run ends bit-identical to an uninterrupted one. So do the last networks of a finished run that is
    continued with more updates; its best ones may differ, because the end of the shorter run was evaluated too.

    `evaluate` is called with the current players. Raises `Stopped` when a signal asked the run to end, `DivergedError`,
    before the next save or evaluation, when a loss, a gradient or a parameter is not finite."""
    folder, options, total, evaluation = config.folder, config.summaries, config.training.num_updates, config.evaluation
    owner, (learners, players) = owner_of(config), make_learners(config, device)
    description = owner._asdict() | {"config": config.model_dump()}
    run = RunState(folder, description, config.checkpoints, total, device)
    if run.resumed_from:
        check_continues(config, run.resumed_from["description"].get("config"))
        check_run(folder, run.resumed_from, owner)
    elif (folder / FINISHED).exists():
        raise ConfigError(f"{folder} is finished but has no checkpoints: restore them, or remove it")
    match_due = Interval(evaluation.num_evals, evaluation.eval_interval, total, end=True)
    saved = SavedNetworks(config, run, learners)
    with ExitStack() as stack:
        progress = Progress("train_players", total, run.done, "update")
        logger = stack.enter_context(MetricLogger(folder, run.done, options, total, progress))
        run.loggers.append(logger)
        record_session(config, folder, owner, run.done)
        for name, learner in learners.items():
            run.restore(name, learner)
            if run.is_fresh:
                learner.begin()
        logger.describe(config)
        curves = PlayerCurves(config, logger, run.done)
        networks: dict[str, nn.Module] = {name: learner.network for name, learner in learners.items()}
        finite = FiniteCheck("train_players", networks, lambda bad: _CURE.format(bad.partition(" ")[0]))
        run.before_save = lambda: finite.check(run.done)
        iteration_done = stack.enter_context(INSPECTORS[-1].profiled(folder, options.profiled_iterations))
        stack.enter_context(run)
        (folder / FINISHED).unlink(missing_ok=True)  # from now on the run may be longer than it says
        for update in range(run.done, total + 1):
            run.done = update
            if not run.is_saved and match_due.due(update):
                run.before_save()
                curves.show_matches(evaluate(players), update)
                saved.keep_best(curves.matches)
            saved.keep_snapshot()
            run.save_if_due()
            if update == total:
                break
            metrics = learn(config, learners, update)
            watched = {f"{n} {key}": metrics[n][key] for n in metrics for key in ("loss", "gradient_norm")}
            finite.record(update + 1, watched)
            curves.show(metrics, learners, update + 1)
            iteration_done()
    return players


def learn(config: PlayersConfig, learners: dict[str, Learner], update: int) -> dict[str, dict[str, Tensor]]:
    """Make the update after `update` others; returns the metrics of all learners."""
    options = config.training
    clock = Clock(update / options.num_updates, update, 0, update)
    metrics = {name: learner.learn(clock) for name, learner in learners.items()}
    if Interval(0, options.league_interval, 0).due(update + 1):
        for learner in learners.values():
            learner.enter_league((update + 1) // options.league_interval)
    return metrics


def owner_of(config: PlayersConfig) -> Identity:
    return identity_of("train_players", config, _COMPARED, saved_inputs(config))


def check_continues(config: PlayersConfig, before: Json) -> None:
    """Raise `ConfigError` unless `config` may resume the run with the configuration `before`, with more updates too if
    no rate is a function of their share."""
    if not isinstance(before, dict) or before.keys() != config.model_dump().keys():  # the identity is refused
        return
    check_same(config, before, _COMPARED, str(config.folder))
    then, now = before["training"]["num_updates"], config.training.num_updates
    shares = [
        key
        for key, value, _ in walk(config)
        if key.partition(".")[0] in config.learning and isinstance(value, dict) and value.get("progress") == "percent"
    ]
    made = f"{config.folder} was made with training.num_updates={then}, but this configuration has {now}: "
    refuse(now < then, f"{made}it can only be raised; give another name=")
    refuse(
        now > then and shares,
        f"{made}{', '.join(shares)} with progress: percent would have differed; give training.num_updates={then}, "
        "or another name= and progress: updates",
    )


class SavedNetworks:
    """Checkpoints of the networks alone, for later runs: `snapshot`, every `checkpoints.snapshot_interval` updates, and
    `best_host` and `best_agent`. The best player is judged by its worst match with a fixed player: a host by its least
    rho, an agent by the greatest rho against it."""

    def __init__(self, config: PlayersConfig, run: RunState, learners: dict[str, Learner]) -> None:
        self._run, self._learners = run, learners
        self._snapshot = Interval(0, config.checkpoints.snapshot_interval, run.total)

    def keep_snapshot(self) -> None:
        """Save all players, if a snapshot is due."""
        if self._snapshot.due(self._run.done):
            self._save("snapshot", self._learners, keep=self._run.total)  # all of them

    def keep_best(self, matches: Json) -> None:
        """Save the players that are better in the last of all `matches` than before. (If a run resumes, the best may be
        of a later update, at which it will be found again.)"""
        run = self._run
        for name, learner in self._learners.items():
            for sidecar in sidecars(run.folder, kind := f"best_{name}")[:1]:
                check_run(run.folder, check(sidecar), Identity.of(run.description))
            *before, score = (worst_match(name, found) for found in matches.values())
            if all(score > one for one in before):
                self._save(kind, {name: learner}, keep=1)

    def _save(self, kind: str, learners: dict[str, Learner], keep: int) -> None:
        run = self._run
        run.before_save()
        networks = {name: {"network": learner.network.state_dict()} for name, learner in learners.items()}
        save(run.folder, kind, run.done, {"step": run.done} | networks, run.description, keep)


def worst_match(name: str, matches: Json) -> float:
    """Rho of the learner's worst match with a fixed player; for the agent, less than zero."""
    pairs = ((pair.split("_vs_"), found["rho"]["value"]) for pair, found in matches.items())
    sign = 1 if name == "host" else -1
    return min(sign * rho for sides, rho in pairs if name in sides and OTHER[name] not in sides)


class PlayerCurves:
    """Logger of curves over updates, log lines, and matches.json (match results by update, the only record of them)."""

    def __init__(self, config: PlayersConfig, logger: MetricLogger, done: int) -> None:
        self._owner, self._path, self._logger = owner_of(config), config.folder / "matches.json", logger
        self.matches = dict[str, Json]()
        lacking = f"{self._path} is missing, by which the best players are chosen: restore it, or give another name="
        refuse(done and not self._path.exists() and any(config.folder.glob("best_*")), lacking)
        if done and self._path.exists():
            written, owner, _ = read_owned(self._path, {"matches": {str: FORM["matches"]}})
            check_owner(self._path, owner, self._owner)
            self.matches = {at: found for at, found in written["matches"].items() if int(at) <= done}

    def show(self, metrics: dict[str, dict[str, Tensor]], learners: dict[str, Learner], update: int) -> None:
        """Log the metrics of an update by learner."""
        self._logger.progress.advance()
        if self._logger.due(update):
            for name, found in metrics.items():
                learner, values = learners[name], {key: value.item() for key, value in found.items()}
                fill = {"replay_fill": float(learner.replay.size), "moves": float(learner.moves)}
                self._logger.scalars(name, values | fill, update)
            newest = self.matches[max(self.matches, key=int)] if self.matches else {}
            rhos = {pair.replace("_", " "): newest[pair]["rho"]["value"] for pair in _TOLD if pair in newest}
            losses = {f"{name} loss": values["loss"].item() for name, values in metrics.items()}
            self._logger.progress.tell(f"rho of {shown(rhos)}" if rhos else shown(losses))

    def show_matches(self, matches: Json, update: int) -> None:
        """Log the rho of each pair of players and statistics of its games."""
        self.matches[str(update)] = matches
        write_owned(self._path, self._owner, update, {"matches": self.matches})
        for pair, found in matches.items():
            rho = {"rho": found["rho"]["value"], "rho_low": found["rho"]["low"], "rho_high": found["rho"]["high"]}
            scalars = rho | {key: value for key, value in found.items() if isinstance(value, float)}
            self._logger.scalars(f"matches/{pair}", scalars, update)
            drawn = {}
            for key, counts in ((key, torch.tensor(value)) for key, value in found.items() if isinstance(value, list)):
                first = 1 if key.endswith("lengths") else 0  # the value that the first count is of
                drawn[f"matches/{pair}/{key}"] = (torch.arange(len(counts)) + first).repeat_interleave(counts)
            self._logger.histograms(drawn, update)
