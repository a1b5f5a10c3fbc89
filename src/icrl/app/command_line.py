"""Entry points: options from the command line, help, exit codes, errors without a traceback."""

import os
import re
import shlex
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from itertools import groupby, takewhile, zip_longest
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from icrl.app.compose import compose_config, groups_of, own_presets, presets_of
from icrl.app.root import FURTHER
from icrl.config.modules import command_of, with_commands
from icrl.config.options import AnyRoot, Declared, Options, walk
from icrl.config.schedules import nearest
from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.runs.device import ran_out
from icrl.runs.distributed import process_group

_WIDTH = 100  # of help


def run_program(main: Callable[[AnyRoot], object], root: type[AnyRoot], program: str, meaning: str, large: str) -> None:
    """Run `main` of `program` with the configuration of class `root` from the command line; `--help` explains every
    option. Exits with code 2 and one line on a `PipelineError`, an `OSError` or a lack of memory, for which it names
    the `large` options; with 130 on an interrupt, 143 after a requested stop, 141 if an output has lost its reader."""
    _open_outputs()
    arguments = sys.argv[1:]
    report, threading.excepthook = threading.excepthook, _report_of_thread
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # asks a training loop to save; elsewhere it must not end the run
    try:
        if {"--help", "-h"} & set(arguments):
            others = [argument for argument in arguments if argument not in ("--help", "-h")]
            print(help_text(program, meaning, root, others))
        else:
            main(_configured(root, program, arguments))
        sys.stdout.flush()  # raise write errors here
    except ConfigError as error:
        _refuse(str(error), *(line for told in FURTHER for line in told(error, root, program, arguments)))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the interpreter's end
        sys.exit(141)  # as shells report SIGPIPE
    except (PipelineError, OSError) as error:  # an OSError has a clear message of its own
        _refuse(str(error))
    except (MemoryError, RuntimeError, OverflowError, ValueError) as error:
        if not ran_out(error):
            raise
        _refuse(f"{program} needs more memory than is free: lower {large}, or other large options. {error}")
    except Stopped as end:
        tqdm.write(str(end), file=sys.stderr)
        sys.exit(143)  # as shells report SIGTERM, so that a chain of stages stops here
    except KeyboardInterrupt:
        tqdm.write("interrupted: the same command continues", file=sys.stderr)
        sys.exit(130)
    finally:
        threading.excepthook = report


def _open_outputs() -> None:
    """Open closed outputs as the null device. Characters that an output's encoding lacks are escaped."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:  # it was closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _configured(root: type[AnyRoot], program: str, arguments: Sequence[str]) -> AnyRoot:
    """Configuration of a program, whose seed is printed if it was drawn."""
    _check_form(arguments)
    config = compose_config(root, arguments)  # which loads plug-ins
    process_group().check_alone(program)
    if "seed=null" in (argument.lstrip("+").lower() for argument in arguments):
        print(f"seed={config.seed}")
    return config


def _check_form(arguments: Sequence[str]) -> None:
    """Refuse what is not written KEY=VALUE."""
    for argument in arguments:
        key, sign, value = argument.lstrip("-").partition("=")
        if key and sign and not argument.startswith("-"):
            continue
        meant = f": did you mean {shlex.join([f'{key}={value}'])}?" if key and value else "; --help lists them"
        raise ConfigError(f"{argument}: options are written KEY=VALUE{meant}")
    if len(presets := [argument for argument in arguments if argument.startswith("experiment=")]) > 1:
        raise ConfigError(f"{' '.join(presets)}: only one preset of a group can be chosen")


def _refuse(message: str, *further: str) -> NoReturn:
    for line in (f"error: {' '.join(message.splitlines())}", *further):
        shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)  # no control characters
        tqdm.write(shown, file=sys.stderr)  # not inside a progress bar
    sys.exit(2)


def _report_of_thread(failure: threading.ExceptHookArgs) -> None:
    if not isinstance(failure.exc_value, OSError):  # write errors in TensorBoard's thread reach the main one later
        threading.__excepthook__(failure)


def help_text(program: str, meaning: str, root: type[AnyRoot], arguments: Sequence[str] = ()) -> str:
    """Help text. Without `arguments`, on one screen: usage, the groups of options, the options of the run. Otherwise
    the options that they name, each with meaning, allowed values and the value that it has: an option, a group (with
    its presets, each with the first comment of its file), a choice `GROUP=PRESET` (its group), or `all`, after the
    whole `meaning` of the program."""
    config = compose_config(root, [argument for argument in arguments if "=" in argument])
    options, presets, own = list(walk(config)), groups_of(root.page), own_presets(arguments)
    alone = {*presets} - {*root.model_fields}  # presets that are not of a group of options
    named = {argument.partition("=")[0] for argument in arguments} - alone
    known = {"all", *presets, *root.model_fields, *(key for key, _, _ in options)}
    for word in sorted(named - known):
        raise ConfigError(f"--help {word}: there is no such group or option{nearest(word, known)}")
    asked = [group for group in presets if group in arguments]
    if not named and not asked:
        about = {group: "presets of all groups" for group in presets}
        about |= {key: root.model_fields[key].description or "" for key, value in config if isinstance(value, Options)}
        return _screen(program, meaning, about, presets, [key for key, _, _ in options if "." not in key])
    lines = [explained(meaning), ""] if "all" in named else []
    for group in asked:
        lines.append(f"{group}=NAME, NAME one of:")
        lines += [f"  {name:20} {description(path)}".rstrip() for name, path in presets_of(group, own).items()]
    parts = [one for one in options if "all" in named or one[0] in named or one[0].partition(".")[0] in named]
    return with_commands("\n".join([*lines, *_explained(parts)]).strip("\n"))


def description(preset: Path) -> str:
    """First comment of a file of a preset."""
    page = takewhile(lambda line: line.startswith("#"), preset.read_text().splitlines())
    return " ".join(line.lstrip("# ") for line in page if "@" not in line)


def _screen(program: str, meaning: str, groups: dict[str, str], presets: Sequence[str], of_run: Sequence[str]) -> str:
    """Help on one screen, with the way to the rest."""
    first, _, usage = "\n\n".join(meaning.strip().split("\n\n")[:2]).partition("\n\n")
    cells = [f"{name + ('=' if name in presets else ''):12} {about}" for name, about in groups.items()]
    half = -(-len(cells) // 2)
    rows = [f"  {left:49}{right}".rstrip() for left, right in zip_longest(cells[:half], cells[half:], fillvalue="")]
    how = f"{command_of(program)} --help"
    rest = {"GROUP": "its options and presets", "GROUP=NAME": "its options with the values of a preset"}
    rest |= {"OPTION": "one option", "all": "every option, and more about the program"}
    return "\n".join(
        [explained(first), "", *textwrap.indent(f"usage: {explained(usage)}", " " * 7)[7:].splitlines(), ""]
        + ["Groups of options, GROUP.OPTION=VALUE; those with = have presets, GROUP=NAME:", *rows, ""]
        + [*textwrap.wrap(f"Options of the run: {', '.join(of_run)}", _WIDTH), ""]
        + [f"  {how} {word:10}  {what}" for word, what in rest.items()]
    )


def explained(meaning: str) -> str:
    """The docstring of a program for the terminal: its commands as this process knows them, in lines that fit."""
    lines: list[str] = []
    for paragraph in meaning.strip().split("\n\n"):
        text = re.sub(r"\s*\n\s*", " ", with_commands(paragraph))
        parts = re.split(r" {3,}", text)  # before results of a command
        lines += [*(line for part in parts for line in textwrap.wrap(part, _WIDTH - 7, break_on_hyphens=False)), ""]
    return "\n".join(lines[:-1])


def _explained(options: Sequence[tuple[str, object, Declared]]) -> list[str]:
    """Lines for `options`: value, meaning, allowed values and stages of each, with a blank line between groups."""
    lines: list[str] = []
    for group, of_group in groupby(options, key=lambda option: option[0].rpartition(".")[0]):
        lines += [""] if group else []
        for key, value, declared in of_group:
            explained = f"{declared.meaning} ({declared.allowed}; stage {declared.stages})"
            wrapped = textwrap.wrap(explained, _WIDTH, initial_indent="      ", subsequent_indent="      ")
            lines += [f"  {key}={value}", *wrapped]
    return lines
