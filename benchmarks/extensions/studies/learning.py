"""Results of learning: run the studies that the documentation shows, keep their figures, write the tables from them.

python -m benchmarks.extensions.studies.learning [STUDY ...]    # all of `STUDIES`, or these; the same command continues
python -m benchmarks.extensions.studies.learning --tables       # only the tables, from the figures that are kept

The figures of a study are in `results/studies/<study>.json`; its picture is beside it if a page shows it. A table of a
page stands between `<!-- results: NAME -->` and `<!-- end -->`: NAME is one of `tables.TABLES`.
"""

import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.extensions.scaling import thousand_gpus
from benchmarks.extensions.studies.tables import (
    ABOVE_OPTIMUM,
    AFTER,
    AFTER_MOVE,
    AREA,
    COVERED,
    LATE,
    MEMORY,
    MINUTES,
    MODEL,
    OFF_PLAN,
    PUBLISHED,
    RANKS,
    REGRET,
    RETURN_END,
    RETURN_FIRST,
    STEPS,
    SUCCESS_END,
    TABLES,
    Compact,
    Table,
)
from benchmarks.measure import RESULTS
from icrl.contracts import Json
from icrl.evaluation.measures import tail_of
from icrl.evaluation.protocol import PARTS, shown_part
from icrl.evaluation.tables import interval_text
from icrl.extensions.studies.programs import study
from icrl.extensions.studies.report import COVERAGE_KEPT, LATER, ours_beside, published_measure
from icrl.runs.files import PROJECT, read_json, write_json

FIGURES = RESULTS / "studies"
PAGES = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
# in the order of running: the headlines first
STUDIES = (
    "trials",
    "regions",
    "region_parts",
    "trial_parts",
    "larger_rooms",
    "source_trials",
    "search",
    "search_parts",
    "terminating",
    "splits",
    "size",
    "classic",
)
STUDIES += ("objective", "decoding", "tokens", "position", "tasks", "pace", "trunk", "finetune", "worlds", "tables")
STUDIES += (
    "vectors",
    "world_trials",
    "mdp_trials",
    "literature",
    "offline_settings",
    "offline",
    "q_histories",
    "filtering",
    "locomotion",
    "minigrid",
    "minigrid_trials",
    "meta_world",
)
_EPISODES = (1, 4, 5, 10)
_BOUNDS = ("mean", "low", "high")
_MEASURES = {  # column: measure, digits
    LATE: ("success", 3),
    STEPS: ("steps_to_goal", 2),
    AREA: ("area", 3),
    RETURN_END: ("returns", 2),
    SUCCESS_END: ("success", 3),
    "solved at .5": ("fraction_solved", 2),
    "solved at .9": ("fraction_solved_90", 2),
    AFTER: ("success_after_first", 3),
}
_PICTURES = {  # of the first run of a study
    "search": ("adaptation", "coverage", "moved_goal"),
    "terminating": ("adaptation", "coverage"),
    "vectors": ("adaptation",),
}
_BLOCK = re.compile(r"(<!-- results: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def keep(name: str, found: Json, folder: Path = FIGURES) -> None:
    """Keep the figures of the study `name`, whose `results.json` says `found`."""
    about = {key: found["config"]["study"][key] for key in ("splits", "seeds", "measure")}
    about |= {key: found[key] for key in ("machine", "versions")}
    folder.mkdir(exist_ok=True)
    write_json(folder / f"{name}.json", about | {"rows": [kept_row(row) for row in found["rows"]]})


def kept_row(row: Json) -> Json:
    """What is kept of a row of a study's results: the figures, and the splits and commits of its models."""
    commits = sorted(f"{revision[:7]}{'+' if revision.endswith('+') else ''}" for revision in row["trained_at"])
    about = {key: row[key] for key in ("variant", "test")} | {"runs": len(row["runs"]), "trained_at": commits}
    return about | {"splits": row["found"].get("splits", []), "figures": figures_of(row)}


def figures_of(row: Json) -> dict[str, dict[str, str]]:
    """Figures of each policy in a row of a study's results, by column, as tables show them."""
    found, shown = row["found"], PARTS[shown_part(row["found"]["final"])]
    figures = {name: _late(curves) | _early(curves) for name, curves in found["curves"].items()}
    for section in ("decodings", "ablations"):
        for played in found.get(section, {}).values():
            figures[played["label"]] = _early(played["curves"]) | _final(played["final"])
    for part, final in found["final"].items():
        figures[PARTS[part]] |= _final(final)
    model = figures[MODEL] = figures[shown]
    for name, curve in found.get("coverage", {}).items():
        covered = model if name == COVERAGE_KEPT else figures.setdefault(name, {})
        covered[COVERED] = _at_episode_4(curve)
    for curve in found.get("coverage_gain", {}).values():
        model[MEMORY] = _at_episode_4(curve)
    for name, curve in found.get("off_plan_gain", {}).items():
        explorer = model if name == COVERAGE_KEPT else figures.setdefault(name, {})
        explorer[OFF_PLAN] = interval_text({bound: curve[bound][-1] for bound in _BOUNDS})
    if above := found.get("differences", {}).get("optimum"):
        model[ABOVE_OPTIMUM] = interval_text(above["steps_to_goal"], 2)
    for name, played in found.get("moved_goal", {}).items():
        (model if name == MODEL else figures[name])[AFTER_MOVE] = interval_text(
            played["final"][f"success_{LATER}_after_move"]
        )
    if row.get("published"):
        _add_published(figures, row)
    model["training tasks"] = figures.get(PARTS["train"], {}).get(LATE, "")
    model |= _cost(row)
    return figures


def _cost(row: Json) -> dict[str, str]:
    """Updates and minutes of one training."""
    seconds = row.get("training_seconds")
    return {"updates": str(row["updates"])} | ({MINUTES: f"{seconds / 60:.0f}"} if seconds else {})


def _add_published(figures: dict[str, dict[str, str]], row: Json) -> None:
    """Add published results, and ours in the same measure."""
    measure = row["published"][0]["measure"]
    for name, ours in ours_beside(row["found"], measure).items():
        figures[name][published_measure(measure)] = ours
    for one in row["published"]:
        figures.setdefault(one["label"], {})[PUBLISHED] = f"{one['value']} ({one['source']})"


def _late(curves: Json) -> dict[str, str]:
    """Means over the last quarter of the episodes, of a policy that has no intervals."""
    means = {column: curves[measure]["mean"] for column, (measure, _) in _MEASURES.items() if measure in curves}
    late = {column: np.mean(mean[-tail_of(len(mean)) :]) for column, mean in means.items()}
    return {column: f"{number:.{_MEASURES[column][1]}f}" for column, number in late.items()}


def _early(curves: Json) -> dict[str, str]:
    success, returns = curves["success"]["mean"], curves.get("returns", {"mean": []})
    early = {f"episode {number}": f"{success[number - 1]:.3f}" for number in _EPISODES if number <= len(success)}
    if "regret" in curves:
        early[REGRET] = interval_text({bound: curves["regret"][bound][-1] for bound in _BOUNDS}, 2)
    for number in (1, 4):
        if number <= len(returns["mean"]):
            shown = {bound: values[number - 1] for bound, values in returns.items() if bound in _BOUNDS}
            early[published_measure(number)] = interval_text(shown, 2) if "low" in shown else f"{shown['mean']:.2f}"
    return early


def _final(final: Json) -> dict[str, str]:
    return {
        column: interval_text(final[name], digits) for column, (name, digits) in _MEASURES.items() if final.get(name)
    }


def _at_episode_4(curve: Json) -> str:
    return interval_text({bound: curve[bound][3] for bound in _BOUNDS})


def table(name: str, folder: Path = FIGURES) -> str:
    """Markdown of the table `name`, with the commits and seeds of the studies that it shows. Policies and
    columns without any figure are left out: the study ran before they were measured."""
    if name in thousand_gpus.TABLES:
        return thousand_gpus.table(name)
    if name == "leaderboard":
        return leaderboard(folder)
    chosen = TABLES[name]
    shown = chosen.lines if isinstance(chosen, Table) else [line for row in chosen.rows for line in row.lines]
    studies = list(dict.fromkeys(line.study for line in shown))
    kept = {study: read_json(folder / f"{study}.json") for study in studies}
    found = {(study, row["variant"], row["test"]): row for study in studies for row in kept[study]["rows"]}
    rows = {key: row["figures"] for key, row in found.items()}
    lines = _full(chosen, rows) if isinstance(chosen, Table) else _compact(chosen, rows)
    read = {(line.study, line.variant, line.test) for line in shown}
    made = [
        f"`python -m src.study study={name}`, {_origin(of, [found[key] for key in read if key[0] == name])}"
        for name, of in kept.items()
    ]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", f"({'; '.join(made)})"])


def _full(chosen: Table, rows: Mapping[tuple[str, str, str], Json]) -> list[list[str]]:
    """Cells of a table with a line for each policy."""
    figures = {line: rows[line.study, line.variant, line.test].get(line.policy) for line in chosen.lines}
    known = {line: of for line, of in figures.items() if of}
    columns = [column for column in chosen.columns if any(column in of for of in known.values())]
    cells = [
        [line.label or (line.variant if line.policy == MODEL else line.policy), *(of.get(name, "") for name in columns)]
        for line, of in known.items()
    ]
    return [[chosen.head, *columns], ["---"] * (1 + len(columns)), *cells]


def _compact(chosen: Compact, rows: Mapping[tuple[str, str, str], Json]) -> list[list[str]]:
    """Cells of a compact table. Policies without the figure are left out."""
    head = [*chosen.head]
    measured, early, cited = "measure" in head, RETURN_FIRST in head, PUBLISHED in head
    alone = len(head) - 1 - measured - early - cited  # lines with a column of their own
    if max(len(row.lines) for row in chosen.rows) > alone:
        alone -= 1
    cells = []
    for label, figure, lines in chosen.rows:
        found = [(line, rows[line.study, line.variant, line.test].get(line.policy, {}).get(figure)) for line in lines]
        others = [
            f"{line.label or (line.variant if line.policy == MODEL else line.policy)}: {shown}"
            for line, shown in found[alone:]
            if shown
        ]
        of_variant = rows[lines[0].study, lines[0].variant, lines[0].test]
        cell = [label]
        cell += [of_variant[lines[0].policy].get(RETURN_FIRST, "")] if early else []
        cell += [figure] if measured else []
        cell += [shown or "" for _, shown in found[:alone]]
        cell += ["; ".join(others)] if len(head) > len(cell) + cited else []
        cells.append([*cell, _published(of_variant)] if cited else cell)
    return [head, ["---"] * len(head), *cells]


def _published(figures: Mapping[str, Mapping[str, str]]) -> str:
    """Published figures, by the publications that report them."""
    by_source: dict[str, list[str]] = {}
    for name, of_policy in figures.items():
        value, _, source = of_policy.get(PUBLISHED, "").removesuffix(")").partition(" (")
        if value:
            by_source.setdefault(source, []).append(f"{name} {value}")
    return "; ".join(f"{source}: {', '.join(values)}" for source, values in by_source.items())


def leaderboard(folder: Path = FIGURES) -> str:
    """Markdown of the table of all worlds: the model, the policy to reach, random play and published numbers, and how
    the model was trained."""
    head = (
        "world",
        "measure",
        "model",
        "to reach",
        "random",
        "published",
        "splits x seeds",
        "minutes",
        "study, commit",
    )
    lines = [head, ["---"] * len(head)]
    for rank in RANKS:
        kept = read_json(folder / f"{rank.study}.json")
        row = next(row for row in kept["rows"] if row["variant"] == rank.variant)
        figures, own = row["figures"], row.get("splits", [])  # of older rows only the study's are known
        splits = len(own or kept.get("splits") or [0])
        splits = min(splits, row.get("runs", splits))  # a row may be of one split alone
        reached, best, random = (
            figures.get(name, {}).get(rank.figure, "") for name in (MODEL, rank.reference, "random")
        )
        published = _published(figures)
        seeds = row["runs"] // splits if "runs" in row else len(kept["seeds"])
        runs = f"{splits} x {seeds}"
        named = [f"split{'s' * (len(own) > 1)} {' '.join(map(str, own))}"] if own else []
        where = ", ".join([f"`{rank.study}`", *named, *row["trained_at"]])
        minutes = figures[MODEL].get(MINUTES, "")
        to_reach = f"{best} ({rank.reference})" if best else rank.reference
        lines.append([rank.world, rank.figure, reached, to_reach, random, published, runs, minutes, where])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _origin(kept: Json, rows: Iterable[Json]) -> str:
    rows = list(rows)
    others = kept.get("splits") or ([0] if any(row.get("splits") for row in rows) else [])  # of rows that name none
    numbers = sorted({split for row in rows for split in row.get("splits") or others})
    splits = f"splits {', '.join(map(str, numbers))}, " if numbers else ""
    commits = sorted({commit for row in rows for commit in row["trained_at"]})
    return f"{splits}seeds {', '.join(map(str, kept['seeds']))}, at {', '.join(commits)}"


def written(page: str, folder: Path = FIGURES) -> str:
    """The text of a page with its tables as the figures in `folder` have them."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{table(block[2], folder)}\n\n{block[3]}", page)


def main() -> None:
    named = sys.argv[1:]
    folders = {name: study.main([f"study={name}"]) for name in named or STUDIES} if named != ["--tables"] else {}
    for name, folder in folders.items():  # after all runs, which say whether there are uncommitted changes
        found = read_json(folder / "results.json")
        keep(name, found)
        if any(f"studies/{name}.png" in page.read_text(encoding="utf-8") for page in PAGES):
            shutil.copyfile(folder / "study.png", FIGURES / f"{name}.png")
        for picture in _PICTURES.get(name, ()):
            run = folder.with_name(found["rows"][0]["runs"][0])
            evaluation = next(run.glob("evaluation*"))  # of the model that the study plays, the only one
            shutil.copyfile(evaluation / f"{picture}.png", FIGURES / f"{name}_{picture}.png")
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
