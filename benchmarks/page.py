"""Page of all kept figures, `docs/speed_figures.md`, from `results/*.json`.

python -m benchmarks.page
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import RESULTS
from icrl.contracts import Json
from icrl.runs.files import PROJECT, read_json

PAGE = PROJECT / "docs" / "speed_figures.md"
_COLUMNS, _SHARE = ("what", "side", "rate", "ratio"), "share of the floor"
_HEAD = """# Figures of speed

`make bench` writes this page: medians of the rounds of each [benchmark](../benchmarks/README.md), all sides in turn.
Ratios, to the side with 1.00, hold better than rates, because the speed of a machine varies. A floor is the time of the
multiplications alone, at the rate of a large product. A commit with a plus sign had uncommitted changes."""


def page(folder: Path = RESULTS) -> str:
    """Text of the page in Markdown: one section for each benchmark that was kept in `folder`."""
    return "\n\n".join([_HEAD, *(section(read_json(path)) for path in sorted(folder.glob("*.json")))]) + "\n"


def section(found: Json) -> str:
    """Section of the page about one benchmark: its command, when and where it ran, and a table of its figures."""
    about = f"{found['date']}, {found['commit']}, {found['machine']}."
    columns = [*_COLUMNS, *([_SHARE] if any(table["floors"] for table in found["tables"]) else [])]
    lines = [f"| {' | '.join(columns)} |", "|---|---|" + (len(columns) - 2) * "---:|"]
    lines += [f"| {' | '.join(row[: len(columns)])} |" for table in found["tables"] for row in _rows(table)]
    return "\n".join([f"## `{found['command']}`", about, "", *lines])


def _rows(table: Json) -> Iterator[tuple[str, ...]]:
    """Rows of one comparison. The first one has its title, and the baseline has the ratio 1."""
    rates, floors, title = table["rates"], table["floors"], table["title"]
    for name, rate in rates.items():
        share = f"{rate / floors[name]:.0%}" if name in floors else ""
        rounded = f"{rate:,.{0 if rate >= 100 else 1}f} {table['unit']}s/s"
        yield title, name, rounded, f"{rate / rates[table['baseline']]:.2f}", share
        title = ""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
