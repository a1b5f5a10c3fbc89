"""Command line of all programs: `icrl train_agents KEY=VALUE ...` or `python -m icrl train_agents KEY=VALUE ...`."""

import sys
from importlib import import_module
from pathlib import Path

from icrl.config.command_line import run_players, run_stage

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("[a-z]*.py"))


def run(name: str) -> None:
    """Run the program `name` with the options of the command line."""
    program, options = import_module(f"icrl.programs.{name}"), sys.argv[1:]
    module, meaning = f"src.{name}", program.__doc__ or ""
    if name == "upgrade":  # it has options of its own
        program.command()
    elif name == "train_players":
        run_players(program.main, module, meaning)
    elif name == "study":
        run_stage(lambda _: program.main(options), module, meaning)
    elif name == "train_agents":  # it starts commands with the same options
        run_stage(lambda config: program.main(config, options), module, meaning)
    else:
        run_stage(program.main, module, meaning)


def main() -> None:
    """Run the program that the first argument names, with the others as its options."""
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        print(f"usage: icrl PROGRAM [KEY=VALUE ...], PROGRAM one of {', '.join(PROGRAMS)}", file=sys.stderr)
        sys.exit(0 if name in ("__help", "_h") else 2)
    del sys.argv[1]
    run(name)


if __name__ == "__main__":
    main()
