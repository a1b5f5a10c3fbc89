"""Diagnostic of the first success: curves of all policies that are played anyway, their table and their picture."""

from collections.abc import Mapping, Sequence
from typing import Any

from icrl.contracts import Json
from icrl.evaluation.diagnostics import OF_DIAGNOSTIC, Diagnostic, Runs
from icrl.evaluation.measures import measure_of
from icrl.evaluation.protocol import PARTS, TEMPERATURE, label_of, part_of, shown_part
from icrl.evaluation.report import Curves, all_curves
from icrl.evaluation.tables import aligned, at, interval_text
from icrl.extensions.first_success.measures import expected, measures_of

_FIRST, _AFTER = (1, 2, 3, 5, 10), (1, 2, 5)  # shown episodes
_FEWEST_AT_RISK = 0.1  # share of streams from which a hazard is drawn


class FirstSuccess(Diagnostic):
    """First success of each policy, and success after it. It plays nothing of its own, and adds to what others have."""

    name = "first success"

    def add(self, results: Json, runs: Runs) -> None:
        if measure_of(results["curves"]) == "returns":
            return
        given, main = (runs.options.num_bootstrap, runs.seed, runs.splits), shown_part(results["final"])
        for name, episodes in runs.episodes.items():
            if OF_DIAGNOSTIC not in name:
                curves, final = _sections(results, name)
                found = measures_of(episodes.success, *given, runs.num_different.get(part_of(name, main), 0))
                curves |= found["curves"]
                final |= found["final"]
        num_episodes = next(iter(runs.episodes.values())).success.shape[-1]
        for name, exact in runs.exact.items():
            results["curves"][name] |= expected(exact["success"].ravel(), num_episodes)

    def tables(self, results: Json) -> list[str]:
        curves, part = all_curves(results), shown_part(results["final"])
        if not any("first_success" in one for one in curves.values()):
            return []
        texts, kept = [first_success_table(curves)], results["final"][part].get("success_after_first")
        if kept:
            meaning = "after the first success (1: a goal once found is never lost)"
            texts.append(f"success of the {PARTS[part]} {meaning}: {interval_text(kept)}")
        return texts

    def figures(self, results: Json, references: Sequence[str]) -> dict[str, Any]:
        beside = {PARTS["development"]} - {PARTS[shown_part(results["final"])]}  # their few streams tell little
        curves = {name: one for name, one in results["curves"].items() if name not in beside and "first_success" in one}
        lines = [*references, "optimum"]
        order = [name for name in results["curves"] if name not in lines]  # as in the picture of the adaptation
        return {"first_success": first_success_figure(curves, lines, order)} if curves.keys() - {*lines} else {}


def first_success_figure(curves: Mapping[str, Curves], references: Sequence[str], order: Sequence[str]) -> Any:
    """Left how soon policies find the goal, as long as enough streams still look for it; right what they keep of it.
    `order` as in `adaptation_figure`."""
    from icrl.plots.figures import adaptation_figure, panel_of  # noqa: PLC0415, Matplotlib takes a second

    labels = {
        "first_success": ("first success, where none came before", "episode"),
        "after_first_success": ("success", "episodes after the first success"),
    }
    panels, xlabels = list[Any](), list[str]()
    for measure, (ylabel, xlabel) in labels.items():
        shown = {name: at_risk(of_policy[measure]) for name, of_policy in curves.items() if measure in of_policy}
        if shown.keys() - {*references}:  # a model that never succeeds keeps nothing
            panels.append(panel_of(ylabel, shown, [name for name in references if name in shown]))
            xlabels.append(xlabel)
    figure = adaptation_figure(panels, title="Finding and keeping", order=order)
    for axes, xlabel in zip(figure.axes, xlabels, strict=True):
        axes.set_xlabel(xlabel)
    return figure


def _sections(results: Json, name: str) -> tuple[Json, Json]:
    """Curves and final numbers in `results` of the policy with this name among the episodes."""
    if name in results["ablations"]:
        return results["ablations"][name]["curves"], results["ablations"][name]["final"]
    if name.startswith(TEMPERATURE):
        decoding = results["decodings"][name.removeprefix(TEMPERATURE)]
        return decoding["curves"], decoding["final"]
    return results["curves"][label_of(name)], results["final"].get(name, {})


def first_success_table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: the hazard of the first success in some episodes, and success some episodes after it. A dash:
    no stream is left to tell. Where none is in any row, the column is left out."""
    rows = [["first success in episode", *map(str, _FIRST), *(f"{lag} after" for lag in _AFTER)]]
    for name, curves in policies.items():
        if "first_success" in curves:
            shares = (("first_success", _FIRST), ("after_first_success", _AFTER))
            rows.append([name, *(at(curves.get(key), number) for key, numbers in shares for number in numbers)])
    told = [column for column in zip(*rows, strict=True) if {*column[1:]} != {"-"}]
    return aligned([*zip(*told, strict=True)])


def at_risk(curve: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Part of a hazard for which at least `_FEWEST_AT_RISK` of the streams are left; all of another curve."""
    number = sum(share >= _FEWEST_AT_RISK for share in curve.get("at_risk", [1.0] * len(curve["mean"])))
    return {key: values[:number] for key, values in curve.items()}
