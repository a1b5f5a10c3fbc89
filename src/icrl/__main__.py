"""`icrl train-agents KEY=VALUE ...`: the programs, where the package is installed."""

import sys
from importlib import import_module
from pathlib import Path

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("[a-z]*.py"))


def main() -> None:
    """Run the program that the first argument names, with the others as its options."""
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        print(f"usage: icrl PROGRAM [KEY=VALUE ...], PROGRAM one of {', '.join(PROGRAMS)}", file=sys.stderr)
        sys.exit(0 if name in ("__help", "_h") else 2)
    del sys.argv[1]
    import_module(f"icrl.programs.{name}").command()


if __name__ == "__main__":
    main()
