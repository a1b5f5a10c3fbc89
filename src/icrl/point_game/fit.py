"""The loop around the players that learn: evaluations, checkpoints, signals, curves."""

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from icrl.collection.pace import interval_of, is_due
from icrl.config.paths import PROJECT
from icrl.config.players_schema import PlayersConfig
from icrl.config.schedules import Clock
from icrl.contracts import ConfigError, Json
from icrl.point_game.learners import Learner, Player, make_learners, player_of
from icrl.point_game.stopwatch import Stopwatch
from icrl.runs import checkpoint
from icrl.runs.device import recorded
from icrl.runs.divergence import DivergedError, Watch, are_finite, diverged
from icrl.runs.identity import Identity, check_owner, check_same, identity_of, read_owned, write_owned
from icrl.runs.profiling import Profiler
from icrl.runs.record import check_snapshots, parameters_table, texts, write_run_record
from icrl.runs.recovery import Recovery
from icrl.runs.summaries import Progress, Summaries

_LINES = 10  # log lines in a whole run; TensorBoard has all points
_COUNTS = ("host_actions", "agent_actions", "finished_lengths", "unfinished_lengths")  # of a match, by number
_MAY_DIFFER = ("name", "root", "num_threads", "checkpoints", "summaries")  # of a continued run

FORM = {"matches": {str: {"rho": {"value": float, "low": float, "high": float}}}}  # of a file with matches, by pair

Evaluate = Callable[[Player, Player], Json]  # host and agent -> rho and the rest of each pair, by its name


@dataclass
class Training:
    """What changes with every update, and survives it in checkpoints."""

    config: PlayersConfig
    learners: dict[str, Learner]
    summaries: Summaries
    updates: int = 0  # of each learner
    watch: Watch = field(default_factory=Watch)

    @property
    def clock(self) -> Clock:
        return Clock(self.updates / self.config.training.num_updates, self.updates, 0, self.updates)

    def save(self, kind: str, keep: int, about: Json | None = None) -> None:
        if kind == "last":
            self.check()
        self.summaries.flush()
        state = {name: learner.state_dict() for name, learner in self.learners.items()}
        description = owner_of(self.config)._asdict() | {"config": recorded(self.config)} | (about or {})
        checkpoint.save(self.config.folder, kind, self.updates, {"learners": state}, description, keep)

    def learn(self) -> dict[str, dict[str, Tensor]]:
        """One update of each learner; returns metrics."""
        metrics = {name: learner.learn(self.clock) for name, learner in self.learners.items()}
        self.updates += 1
        watched = ("loss", "gradient_norm")
        self.watch.note(self.updates, {f"{name} {key}": metrics[name][key] for name in metrics for key in watched})
        return metrics

    def check(self) -> None:
        """Raise `DivergedError` where losses, gradients or parameters are not finite."""
        self.check_updates()
        bad = [name for name, learner in self.learners.items() if not are_finite(learner.network.parameters())]
        if bad:
            raise self._diverged("after", self.updates, [f"{name} parameters" for name in bad])

    def check_updates(self) -> None:
        """As `check`, of losses and gradients alone."""
        if found := self.watch.first_bad():
            raise self._diverged("in", *found)

    def _diverged(self, when: str, update: int, names: Iterable[str]) -> DivergedError:
        cure = f"a lower {next(iter(names)).split()[0]}.learning_rate or training.max_gradient_norm"
        return diverged(f"train_players, {when} update {update}", names, cure)

    def load(self, state: dict[str, Any], updates: int) -> None:
        self.updates = updates
        for name, learner in self.learners.items():
            learner.load_state_dict(state["learners"][name])


def fit_players(config: PlayersConfig, evaluate: Evaluate, device: torch.device) -> tuple[Player, Player]:
    """Train who learns for `training.num_updates`, from the newest checkpoint if there is one; returns host and agent.

    `evaluate` is called amid training, with who plays then. A continued run ends with the bits of an undisturbed one.
    Raises `Stopped` when a signal asked the run to end, and `DivergedError` when a loss, a gradient or a parameter is
    not finite: at the latest before the next state is saved or evaluated."""
    folder, options = config.folder, config.summaries
    watch = Stopwatch(options.timing, device)
    learners = make_learners(config, watch, device)
    found = checkpoint.load_newest(folder, "last", device)
    if found:
        check_continues(config, found[1]["description"].get("config"))
        checkpoint.check_run(folder, found[1], owner_of(config))
    elif (folder / checkpoint.FINISHED).exists():
        raise ConfigError(f"{folder} is finished and its checkpoints are gone: remove it too")
    done, total = found[1]["step"] if found else 0, config.training.num_updates
    with ExitStack() as stack:
        progress = stack.enter_context(Progress("train_players", total, done, "update"))
        summaries = stack.enter_context(Summaries(folder, done, options.flush_secs, options.max_queue))
        session = write_run_record(
            *(folder, PROJECT, recorded(config), sys.argv, check_snapshots(options.code_snapshots, PROJECT)),
            *(owner_of(config), done),
        )
        tables = {
            f"parameters/{name}": parameters_table(learner.network, learner.optimizer)
            for name, learner in learners.items()
        }
        summaries.texts(texts(session) | tables)
        training = Training(config, learners, summaries)
        if found:
            training.load(found[0], done)
        else:
            for learner in learners.values():
                learner.begin()
        profiler = stack.enter_context(Profiler(folder, options.profiled_iterations, tqdm.write))
        recovery = stack.enter_context(
            Recovery(config.checkpoints.on_crash, lambda error: training.save("crash", 1, {"error": error}))
        )
        board = Board(config, summaries, progress, watch, done)
        _run(training, board, evaluate, recovery, profiler, resumed=found is not None)
        board.write_times()
    return player_of("host", config, learners), player_of("agent", config, learners)


def owner_of(config: PlayersConfig) -> Identity:
    """The run that `config` asks for."""
    return identity_of("train_players", config, _compared(config))


def check_continues(config: PlayersConfig, before: Json) -> None:
    """Raise `ConfigError` unless `config` may go on with what was recorded `before` in its folder. What is no
    configuration of this program is left to the check of whose it is."""
    if isinstance(before, dict) and before.keys() == recorded(config).keys():
        check_same(config, before, _compared(config), str(config.folder))


def _compared(config: PlayersConfig) -> list[str]:
    return [name for name in type(config).model_fields if name not in _MAY_DIFFER]


def _run(
    training: Training, board: "Board", evaluate: Evaluate, recovery: Recovery, profiler: Profiler, *, resumed: bool
) -> None:
    config, learners, total = training.config, training.learners, training.config.training.num_updates
    checkpoints, evaluation = config.checkpoints, config.evaluation
    per_checkpoint = interval_of(checkpoints.num_checkpoints, checkpoints.checkpoint_interval, total)
    per_evaluation = interval_of(evaluation.num_evals, evaluation.eval_interval, total)
    players = player_of("host", config, learners), player_of("agent", config, learners)
    while True:
        updates = training.updates
        asked, last = recovery.save_now, updates == total
        if not resumed:
            if last or (updates and is_due(updates, per_evaluation)):
                training.check()
                board.show_matches(evaluate(*players), updates)
            if last or asked or (updates and is_due(updates, per_checkpoint)):
                training.save("last", checkpoints.keep_last)
        if asked:
            recovery.saved(f"update {updates} of {total}", recovery.stop_now)
        if last:
            return
        resumed = False
        clock = training.clock
        board.show(training.learn(), learners, clock)
        if training.watch.is_full:
            training.check_updates()
        profiler.step()


class Board:
    """Curves over updates, log lines, and matches.json: what `evaluate` gave after how many updates."""

    def __init__(
        self, config: PlayersConfig, summaries: Summaries, progress: Progress, watch: Stopwatch, done: int
    ) -> None:
        """`done`: updates after which the run goes on."""
        self._options, self._summaries, self._progress, self._watch = config.summaries, summaries, progress, watch
        self._total = config.training.num_updates
        self._interval = interval_of(self._options.num_summaries, self._options.summary_interval, self._total)
        self._folder, self._owner = config.folder, owner_of(config)
        self._matches = config.folder / "matches.json"
        self._measured: dict[str, Json] = {}
        if done and self._matches.exists():
            written, owner, _ = read_owned(self._matches, {"matches": {str: FORM["matches"]}})
            check_owner(self._matches, owner, self._owner)
            self._measured = written["matches"]

    def show(self, metrics: dict[str, dict[str, Tensor]], learners: dict[str, Learner], clock: Clock) -> None:
        """The update that was made at `clock`."""
        self._progress.advance(1)
        update = clock.updates + 1
        if is_due(update, self._interval):
            for name, learner in learners.items():
                values = {key: value.item() for key, value in metrics[name].items()}
                fill = {"replay_fill": float(len(learner.replay)), "moves": float(learner.moves)}
                self._summaries.scalars(name, values | fill, update)
                if self._options.layerwise:
                    self._summaries.scalars(f"{name}_layers", layers_of(learner.network), update)
            self._summaries.scalars("milliseconds", self._watch.milliseconds, update)
        if update * _LINES // self._total > clock.updates * _LINES // self._total:
            losses = {f"{name} loss": values["loss"].item() for name, values in metrics.items()}
            self._progress.log(losses)

    def show_matches(self, measured: Json, update: int) -> None:
        """The rho of each pair of players, and how its games went."""
        self._measured[str(update)] = measured
        write_owned(self._matches, self._owner, update, {"matches": self._measured})
        for pair, found in measured.items():
            tag = f"matches/{pair}"
            rho = {"rho": found["rho"]["value"]} | {f"rho_{end}": found["rho"][end] for end in ("low", "high")}
            scalars = rho | {key: found[key] for key in ("mean_length", "fraction_finished")}
            self._summaries.scalars(tag, scalars, update)
            counted = {key: torch.tensor(found[key]) for key in _COUNTS}
            drawn = {f"{tag}/{key}": torch.arange(len(n)).repeat_interleave(n) for key, n in counted.items()}
            self._summaries.histograms(drawn, update)

    def write_times(self) -> None:
        """Where the time of this session went, where that was asked for."""
        if self._watch.milliseconds:
            times = {"milliseconds": self._watch.milliseconds}
            write_owned(self._folder / "milliseconds.json", self._owner, self._total, times)


def layers_of(network: nn.Module) -> dict[str, float]:
    """`value_mean/<name>` and `value_std/<name>` of every parameter, `gradient_...` of its gradient where it has one; a
    single number has no deviation."""
    found: dict[str, float] = {}
    for name, parameter in network.named_parameters():
        for kind, tensor in (("value", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None:
                found[f"{kind}_mean/{name}"] = tensor.mean().item()
                if tensor.numel() > 1:
                    found[f"{kind}_std/{name}"] = tensor.std().item()
    return found
