"""Command line of all programs: `icrl train_agents KEY=VALUE ...` or `python -m icrl train_agents KEY=VALUE ...`."""

import sys
import textwrap
from functools import partial
from pathlib import Path

from icrl import extensions
from icrl.config.modules import extra_module
from icrl.contracts import ConfigError

_FILES = sorted((Path(__file__).parent / "programs").glob("[a-z]*.py"))
PROGRAMS = {path.stem: f"icrl.programs.{path.stem}" for path in _FILES} | extensions.programs()  # module by name


def run(name: str, extension: str = "") -> None:
    """Run the program `name` of the core or an `extension` with the options of the command line.

    Its module has `main(config)` or, if it starts commands with the same options, `start(config, options)`; `OPTIONS`,
    the class of `config`, if it is not `Config`; and `LARGE`, the options that determine most of its memory. With
    `command(options)` it reads them itself."""
    try:
        if name not in PROGRAMS:
            lost = extensions.missing(extension)
            needed = f"needs the extension {lost}, which " if lost != extension else ""
            raise ConfigError(f"{name} is a program of the extension {extension}, which {needed}is not installed")
        modules = (PROGRAMS[name], "icrl.app.command_line", "icrl.app.root")
        program, line, root = (extra_module(one, f"icrl {name}") for one in modules)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if hasattr(program, "command"):
        program.command(sys.argv[1:])
        return
    main = partial(program.start, options=sys.argv[1:]) if hasattr(program, "start") else program.main
    line.run_program(main, getattr(program, "OPTIONS", root.Config), name, program.__doc__ or "", program.LARGE)


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
