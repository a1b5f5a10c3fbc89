"""Results of evaluations: `results.json` and `episodes.npz`, several runs combined into one, and the text report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icrl.contracts import Json, PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.measures import LATER, MEASURES, move_of, tail_of
from icrl.evaluation.protocol import PARTS, Setting, coverage_numbers, numbers_of, shown_part
from icrl.rl.statistics import Floats
from icrl.runs.files import Identity, fits, read_owned, sha256, write_atomically
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.evaluation.protocol import EvaluationConfig

Curves = Mapping[str, Mapping[str, list[float]]]

RESULTS, EPISODES = "results.json", "episodes.npz"
_OWNER = "owner"  # array with program and run
COVERAGE, MISLED = "coverage", "other_goal_first"  # kinds of further arrays, by policy
_TYPES = ("u1", "i1", "u2", "i2", "f2", "f4", "f8")  # the first exact one is taken
_CURVE = {"mean": [float], "low": [float], "high": [float]}
_BIN = {"bin": int, "confidence": float, "accuracy": float, "share": float}
_PROBES = {str: {"label": str, "curves": dict.fromkeys(MEASURES, _CURVE)}}
_FORM = {
    "config": {"seed": int, "env": dict},
    "checkpoint": str,
    "episodes": str,
    "references": {str: {str: {str: [float]}}},
    "protocol": {"num_tasks": {str: int}, "decoding": str, "confidence": float},
    "curves": {str: dict.fromkeys(MEASURES, _CURVE)},
    "final": {str: {"fraction_solved": {"mean": float}}},
    "decodings": _PROBES,
    "ablations": _PROBES,
}
_FIRST, _AFTER, _MOVED = (1, 2, 3, 5, 10), (1, 2, 5), (1, 2, 5, LATER)  # shown episodes
_SUMMARY = (  # measure, description, digits
    ("success", "success on {tasks} over the last quarter of the episodes", 3),
    ("success_after_first", "success on {tasks} after the first success (1: a goal once found is never lost)", 3),
    ("fraction_of_optimum", "return over the last quarter of the episodes, as a fraction of the optimum", 3),
    ("area", "area under the curve of returns (0: random from first to last episode, 1: the optimum)", 3),
    ("regret", "returns lost to the optimum on {tasks} over all episodes (regret)", 2),
    ("regret_to_searcher", "returns lost to the searcher over all episodes (0: a search that forgets nothing)", 2),
    ("regret_to_covering_plan", "returns lost to the covering plan over all episodes (0: the shortest search)", 2),
)


def read_results(folder: Path) -> tuple[Json, Identity]:
    """The results in `folder` and the run that wrote them. Raises `PipelineError` if they are missing or damaged."""
    results, owner, _ = read_owned(folder / RESULTS, _FORM)
    part = shown_part(results["final"])
    named = (results["final"], part), (results["protocol"]["num_tasks"], part), (results["curves"], PARTS[part])
    optional = {"coverage": {str: _CURVE}, "coverage_gain": {str: _CURVE}, "moved_goal": _PROBES}
    optional |= {"calibration": {"error": float, "bins": [_BIN]}}
    given = [(results[section], form) for section, form in optional.items() if section in results]
    sound = all(content and fits(content, form) for content, form in given)
    if not (sound and all(name in section for section, name in named)):
        raise PipelineError(f"{folder / RESULTS} has unexpected content: another version or program wrote it")
    return results, owner


def save_episodes(
    folder: Path,
    episodes: Mapping[str, Adaptation],
    owner: Identity,
    further: Mapping[str, Mapping[str, Floats]] | None = None,
) -> str:
    """Write `episodes.npz` and return its checksum. Its arrays are `<policy>/<field>` for each field of an adaptation,
    `<kind>/<policy>` for each kind of `further` arrays, and `owner`."""
    arrays: dict[str, Any] = {}
    for name, adaptation in episodes.items():
        for field, values in adaptation._asdict().items():
            arrays[f"{name}/{field}"] = _smallest(values)
    for kind, by_policy in (further or {}).items():
        arrays |= {f"{kind}/{name}": _smallest(values) for name, values in by_policy.items()}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays | {_OWNER: np.array(owner)})
    write_atomically(folder / EPISODES, content.getvalue())
    return sha256(folder / EPISODES)


def _smallest(values: Floats) -> Any:
    """`values` in the smallest type that is exact."""
    with np.errstate(invalid="ignore", over="ignore"):  # a cast that overflows is not equal, so not taken
        return next(cast for kind in _TYPES if np.array_equal(cast := values.astype(kind), values))


def load_episodes(folder: Path, checksum: str) -> tuple[dict[str, Adaptation], dict[str, dict[str, Floats]]]:
    """Episodes by policy, and further arrays by kind and policy, that `save_episodes` wrote; all in float64. Raises
    `PipelineError` unless the file has the `checksum` that `results.json` beside it names."""
    path = folder / EPISODES
    if not path.exists() or sha256(path) != checksum:
        raise PipelineError(f"{path} is missing, damaged, or not the one of the results.json beside it")
    episodes: dict[str, dict[str, Floats]] = {}
    further: dict[str, dict[str, Floats]] = {COVERAGE: {}, MISLED: {}}
    with np.load(path, allow_pickle=False) as found:
        for name in found.files:
            kind, _, rest = name.partition("/")
            policy, _, field = name.rpartition("/")
            if kind in further:
                further[kind][rest] = found[name].astype(np.float64)
            elif name != _OWNER:
                episodes.setdefault(policy, {})[field] = found[name].astype(np.float64)
    if any(fields.keys() != set(Adaptation._fields) for fields in episodes.values()):
        raise PipelineError(f"{path} has other arrays than this version writes: evaluate again")
    return {name: Adaptation(**fields) for name, fields in episodes.items()}, further


def combined(folders: Sequence[Path], config: EvaluationConfig, seed: int) -> Json:
    """Results over several runs, from the evaluations in `folders`.

    Runs on several splits of the tasks (`tasks.seed`) have their own tasks each. Raises `PipelineError` if a folder has
    no complete results, or if its world, decoding or policies, or on one split its tasks, differ from those of the
    first."""
    found: list[tuple[Json, Json]] = []
    runs: dict[tuple[int, int], dict[str, Adaptation]] = {}
    measured: dict[str, list[dict[str, Floats]]] = {COVERAGE: [], MISLED: []}
    for folder in folders:
        results, _ = read_results(folder)
        episodes, further = load_episodes(folder, results["episodes"])
        split = _split_of(results)
        shared: dict[str, Any] = {}
        if not found or split == _split_of(found[0][0]):
            shared = {label.removeprefix("model, "): results.get(f"{part}_tasks") for part, label in PARTS.items()}
        shared |= {"worlds": results["config"]["env"], "decodings": results["protocol"]["decoding"]}
        shared["policies, streams or episodes"] = {name: played.returns.shape for name, played in episodes.items()}
        found.append((results, shared))
        if differ := [key for key, value in shared.items() if value != found[0][1][key]]:
            raise PipelineError(f"{folders[0]} and {folder} cannot be combined: their {' and '.join(differ)} differ")
        runs[split, results["config"]["seed"]] = episodes
        for kind, arrays in further.items():
            measured[kind].append(arrays)
    if len(runs) < len(folders):
        raise PipelineError(f"{' and '.join(map(str, folders))} cannot be combined: some have the same seed")
    first, _ = found[0]
    splits = {split for split, _ in runs}
    apart = [results["references"] for results, _ in found] if len(splits) > 1 else []
    regrets = "regret" in first["final"][shown_part(first["final"])]
    setting = Setting(first["references"], first["protocol"]["decoding"], regrets, apart)
    if apart:
        kept = {"splits": sorted(splits)}
        by_run = {f"split {split}, seed {seed}": episodes for (split, seed), episodes in runs.items()}
    else:
        kept = {key: first[key] for key in (*(f"{part}_tasks" for part in PARTS), "references") if key in first}
        by_run = {seed: episodes for (_, seed), episodes in runs.items()}
    numbers = numbers_of(by_run, setting, config, seed, measured[MISLED])
    return kept | numbers | coverage_numbers(measured[COVERAGE], config, seed, bool(apart))


def _split_of(results: Json) -> int:
    return results["config"].get("tasks", {}).get("seed", 0)


def source_label(name: str) -> str:
    """Name of a source in tables and plots: A2C, A3C, PPO and DQN are abbreviations, the others are words."""
    if name == "q_learning":
        return "Q-learning"
    return name.upper() if len(name) == 3 else name.replace("_", " ")


def solved(spec: EnvSpec) -> str:
    """Words for a task that counts as solved."""
    return "whose best arm was found" if spec.success == "best_action" else "solved"


def probes_of(results: Json) -> dict[str, Curves]:
    """Curves of other decodings and of ablations, by label."""
    probes = [*results["decodings"].values(), *results["ablations"].values()]
    return {probe["label"]: probe["curves"] for probe in probes if probe["label"] not in results["curves"]}


def all_curves(results: Json) -> dict[str, Curves]:
    """All curves by label: the model, its probes, then the references."""
    curves = results["curves"]
    ours = {label: curves[label] for label in PARTS.values() if label in curves}
    return ours | probes_of(results) | curves


def table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: success at some episodes, means over the last quarter, and the total regret if there is
    one."""
    num_episodes = len(next(iter(policies.values()))["success"]["mean"])
    tail = tail_of(num_episodes)
    shown = [episode for episode in (1, 5, 20) if episode <= num_episodes - tail]
    last = f"{num_episodes - tail + 1}-{num_episodes}"
    rows = [["success at episode", *map(str, shown), last, f"steps to goal {last}", f"return {last}"]]
    for name, curves in policies.items():
        means, success = [np.mean(curves[key]["mean"][-tail:]) for key in MEASURES], curves["success"]["mean"]
        rows.append([name, *(f"{success[episode - 1]:.3f}" for episode in shown), f"{means[0]:.3f}"])
        rows[-1] += [f"{means[2]:.2f}", f"{means[1]:.2f}"]
        if "regret" in curves:
            rows[-1].append(f"{curves['regret']['mean'][-1]:.2f}")
    if len(rows[-1]) > len(rows[0]):
        rows[0].append(f"regret 1-{num_episodes}")
    return _aligned(rows)


def coverage_table(coverage: Mapping[str, Mapping[str, list[float]]], gain: Mapping[str, Any]) -> str:
    """One row per policy: coverage by the end of each episode without a goal. The last row is the `gain` by memory, if
    there is one."""
    num_episodes = len(next(iter(coverage.values()))["mean"])
    rows = [["cells visited without a goal, by episode", *map(str, range(1, num_episodes + 1))]]
    named = {**coverage} | {f"{name}, minus wiped": curve for name, curve in gain.items()}
    return _aligned(rows + [[name, *(f"{share:.3f}" for share in curve["mean"])] for name, curve in named.items()])


def first_success_table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: the hazard of the first success in some episodes, and success some episodes after it. A dash:
    no stream is left to tell."""
    rows = [["first success in episode", *map(str, _FIRST), *(f"{lag} after" for lag in _AFTER)]]
    for name, curves in policies.items():
        if "first_success" in curves:
            shares = (("first_success", _FIRST), ("after_first_success", _AFTER))
            rows.append([name, *(_at(curves.get(key), number) for key, numbers in shares for number in numbers)])
    return _aligned(rows)


def moved_table(moved: Mapping[str, Any]) -> str:
    """One row per policy: success in some episodes after the goal moved, and visits of the old goal before the new."""
    num_episodes = len(next(iter(moved.values()))["curves"]["success"]["mean"])
    before, tail = move_of(num_episodes), tail_of(num_episodes)
    after = [later for later in _MOVED if before + later <= num_episodes]
    episodes, last = (0, *after), f"{num_episodes - tail + 1}-{num_episodes}"
    header = [f"goal moves after episode {before}, success at", *(str(before + later) for later in episodes), last]
    rows = [[*header, *(f"old first {before + later}" for later in after)]]
    for name, numbers in moved.items():
        success, old = numbers["curves"]["success"], numbers["curves"].get("other_goal_first")
        row = [
            name,
            *(_at(success, before + later) for later in episodes),
            f"{numbers['final']['success']['mean']:.3f}",
        ]
        rows.append([*row, *(_at(old, before + later) for later in after)])
    return _aligned(rows)


def _at(curve: Mapping[str, list[float]] | None, number: int) -> str:
    """Mean of a curve at its place `number` from 1 on; a dash if it has none there."""
    return f"{curve['mean'][number - 1]:.3f}" if curve and number <= len(curve["mean"]) else "-"


def tables(results: Json) -> list[str]:
    """All tables of an evaluation."""
    curves = all_curves(results)
    found = [table(curves), first_success_table(curves)]
    if moved := results.get("moved_goal"):
        found.append(moved_table(moved))
    if coverage := results.get("coverage"):
        found.append(coverage_table(coverage, results.get("coverage_gain", {})))
    return found


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Table with columns as wide as their longest cell, and a line below the header."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def summary(results: Json, spec: EnvSpec) -> str:
    """One line per number of the main part: solved tasks, success, optimum, regrets."""
    part = shown_part(results["final"])
    tasks, final = PARTS[part].removeprefix("model, "), results["final"][part]
    confidence = f"{results['protocol']['confidence']:.0%} interval"
    num_tasks = results["protocol"]["num_tasks"][part]
    solved_ones = f"{final['fraction_solved']['mean']:.0%} of {num_tasks}"
    lines = [f"{tasks} {solved(spec)} in at least half of the last quarter of the episodes: {solved_ones}"]
    if strict := final.get("fraction_solved_90"):
        lines[0] += f", and {strict['mean']:.0%} in at least nine of ten of them"
    for name, description, digits in _SUMMARY:
        if number := final.get(name):
            mean, low, high = (f"{number[end]:.{digits}f}" for end in ("mean", "low", "high"))
            lines.append(f"{description.format(tasks=tasks)}: {mean}, {confidence} {low} to {high}")
    if near := final.get("episodes_to_90"):
        reached = "never" if near["episode"] is None else near["episode"]
        lines.append(f"first episode with 90% of the return of the optimum: {reached}")
        if share := near["share_reached"]:
            interval = f"{confidence} {near['low']:.0f} to {near['high']:.0f}"
            lines[-1] += f", {interval} (over tasks and streams drawn again, {share:.0%} of which get there)"
    if found := results.get("calibration"):
        means = f"confidence {found['confidence']:.3f}, right {found['accuracy']:.3f}"
        lines.append(f"calibration error on windows of development tasks: {found['error']:.3f} ({means})")
    return "\n".join(lines)
