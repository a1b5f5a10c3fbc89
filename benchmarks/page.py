"""Page of all kept figures, `docs/speed_figures.md`, from `results/*.json`.

python -m benchmarks.page
"""

from pathlib import Path

from benchmarks.measure import RESULTS
from icrl.contracts import Json
from icrl.runs.files import PROJECT, read_json

PAGE = PROJECT / "docs" / "speed_figures.md"
_HEAD = """# Figures of speed

`make bench` writes this page: medians of the rounds of each benchmark, all sides in turn. Ratios hold better than
rates, because the speed of a machine varies. A floor is the time of the multiplications alone, at the rate that this
machine reached in a large product. A commit with a plus sign had uncommitted changes. What is compared:
[benchmarks](../benchmarks/README.md)."""


def page(folder: Path = RESULTS) -> str:
    """Text of the page in Markdown: one section for each benchmark that was kept in `folder`."""
    return "\n\n".join([_HEAD, *(section(read_json(path)) for path in sorted(folder.glob("*.json")))]) + "\n"


def section(found: Json) -> str:
    """Section of the page about one benchmark: its command, when and where it ran, and its tables."""
    about = f"{found['date']}, {found['commit']}, {found['machine']}."
    return "\n\n".join([f"## `{found['command']}`", about, *map(_table, found["tables"])])


def _table(table: Json) -> str:
    rates, baseline, floors = table["rates"], table["baseline"], table["floors"]
    lines = [f"{table['title']}:", "", f"| | {table['unit']}s/s | x {baseline} |", "|---|---:|---:|"]
    if floors:
        lines[2:] = [f"{lines[2]} share of the floor |", f"{lines[3]}---:|"]
    for name, rate in rates.items():
        share = f" {rate / floors[name]:.0%} |" if name in floors else " |" if floors else ""
        rounded = f"{rate:,.{0 if rate >= 100 else 1}f}"
        lines.append(f"| {name} | {rounded} | {rate / rates[baseline]:.2f} |{share}")
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
