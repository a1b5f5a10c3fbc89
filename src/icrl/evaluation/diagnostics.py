"""Diagnostics and films: what extensions measure and show in an evaluation beside its protocol, such as a goal that
moves, and videos.

A diagnostic plays policies of its choice, in jobs with the names `<name of the diagnostic>: <policy>`. Their results
are episodes, which `episodes.npz` keeps under these names, and arrays by kind and policy. Sections of `results.json`,
tables and pictures are made of both. R runs, G tasks, S streams per task, E episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from torch import Tensor

from icrl.config.modules import load_plugins
from icrl.contracts import Json, Policy, Rollout
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import Adaptation, EvaluationConfig, Job
from icrl.rl.statistics import Floats

if TYPE_CHECKING:
    from icrl.app.root import Config
    from icrl.evaluation.measures import Bounds, Exact
    from icrl.evaluation.setup import Played, Setup

OF_DIAGNOSTIC = ": "  # between the name of a diagnostic and that of a policy
Arrays = dict[str, dict[str, Floats]]  # by kind and policy
Episodes = dict[str, Adaptation]  # by policy


class Runs(NamedTuple):
    """Episodes and arrays of one run or of several."""

    options: EvaluationConfig
    seed: int  # of the resamples
    splits: Sequence[int]  # of the tasks of each run, if there are several
    possible: Mapping[str, tuple[float, float]]  # least and largest mean of a measure
    episodes: Episodes  # `[R, G, S, E]`
    arrays: Sequence[Arrays]  # of each run
    exact: Mapping[str, Mapping[str, Floats]] = {}  # `[R or 1, G]` on the main part, by exact reference and measure
    num_different: Mapping[str, int] = {}  # tasks by part, where splits may share some
    bounds: Bounds = {}  # on the main part


class Diagnostic(Protocol):
    """Base of diagnostics: numbers of its own in an evaluation."""

    name: str
    forms: Mapping[str, Json] = {}  # of each section that it adds to `results.json`

    def jobs(self, setup: Setup) -> Iterable[Job]:
        """Jobs to play; none by default."""
        return ()

    def outcome(
        self, setup: Setup, played: Mapping[str, tuple[Adaptation, Rollout]], own: Mapping[str, list[Any]]
    ) -> tuple[Episodes, Arrays]:
        """Episodes and arrays to keep, given what the evaluation `played` by policy, and results of its `own` jobs."""
        return {}, {}

    def add(self, results: Json, runs: Runs) -> None:
        """Add its sections to `results`, if the runs have them."""

    def tables(self, results: Json) -> list[str]:
        """Tables of its sections, as far as `results` have them."""
        return []

    def figures(self, results: Json, references: Sequence[str]) -> dict[str, Any]:
        """Pictures of its sections by the names of their files; `references` are drawn as such."""
        return {}


DIAGNOSTICS: dict[str, Diagnostic] = {}  # by name
# Other decodings of the model and ablations of its context, to play beside it, by name; see `protocol.ABLATIONS`.
PROBES: list[Callable[[Setup], dict[str, Policy[Any]]]] = []


def diagnostics() -> list[Diagnostic]:
    """Diagnostics of all extensions that are installed."""
    load_plugins()
    return [*DIAGNOSTICS.values()]


class Filming(Protocol):
    """Module that writes videos. G tasks."""

    def tell(self, config: Config, env: TensorEnv) -> None:
        """Print why there will be no videos, if they are asked and the world cannot be shown."""

    def film_agents(self, config: Config, env: TensorEnv, tasks: Tensor, played: Rollout) -> None:
        """Write videos of source agents of `tasks` `[G, task_dim]`, after stage one; `played` is `[T, B]`."""

    def lives(self, setup: Setup, played: Played, references: Exact) -> Callable[[], object]:
        """Picklable function that writes videos of what models `played`; `references`: exact ones of the main part."""

    def guide(self, setup: Setup) -> list[str]:
        """Lines that name the video of an evaluation to look at first."""


FILMING: list[str] = []  # names of such modules
MAPS: list[str] = []  # names of modules that draw the tasks of a world as a map, with `map_of_tasks`


def filming() -> list[Filming]:
    """Modules of extensions that write videos. They are imported when something may be filmed, because drawing needs
    packages that acting does without."""
    return [cast(Filming, import_module(name)) for name in FILMING]
