"""Command line of all programs: `icrl train_agents KEY=VALUE ...` or `python -m icrl train_agents KEY=VALUE ...`."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icrl.config.modules import extra_module
from icrl.contracts import ConfigError

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("[a-z]*.py"))


def run(name: str) -> None:
    """Run the program `name` with the options of the command line."""
    extra, modules = "search" if name == "search_params" else "train", ("config.command_line", f"programs.{name}")
    try:
        line, program = (extra_module(f"icrl.{module}", f"icrl {name}", extra) for module in modules)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    run_stage: Callable[[Callable[[Any], object], str, str], None] = line.run_stage
    options, meaning = sys.argv[1:], program.__doc__ or ""
    if name == "upgrade":  # it has options of its own
        program.command()
    elif name == "train_players":
        line.run_players(program.main, name, meaning)
    elif name == "study":
        run_stage(lambda _: program.main(options), name, meaning)
    elif name == "train_agents":  # it starts commands with the same options
        run_stage(lambda config: program.main(config, options), name, meaning)
    else:
        run_stage(program.main, name, meaning)


def main() -> None:
    """Run the program that the first argument names, with the others as its options."""
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        names = ", ".join(program.replace("_", "-") for program in PROGRAMS)
        usage = f"usage: icrl PROGRAM [KEY=VALUE ...] or icrl PROGRAM --help, PROGRAM one of {names}"
        print(textwrap.fill(usage, 100, break_on_hyphens=False), file=sys.stderr)
        sys.exit(0 if name in ("__help", "_h") else 2)
    del sys.argv[1]
    run(name)


if __name__ == "__main__":
    main()
