"""Command line of all programs: `icrl train_agents KEY=VALUE ...` or `python -m icrl train_agents KEY=VALUE ...`."""

import os
import sys
from importlib import import_module
from pathlib import Path

from icrl.runs.processes import end_with_parent

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("[a-z]*.py"))


def main() -> None:
    """Run the program that the first argument names, with the others as its options."""
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        print(f"usage: icrl PROGRAM [KEY=VALUE ...], PROGRAM one of {', '.join(PROGRAMS)}", file=sys.stderr)
        sys.exit(0 if name in ("__help", "_h") else 2)
    if os.environ.pop("ICRL_ENDS_WITH_LAUNCHER", ""):  # set by `study`, so that no run outlives it
        end_with_parent(1)
    del sys.argv[1]
    import_module(f"icrl.programs.{name}").command()


if __name__ == "__main__":
    main()
