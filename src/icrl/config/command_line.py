"""Entry points: options from the command line, help, exit codes, errors without a traceback."""

import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from typing import NoReturn

from tqdm import tqdm

from icrl.config.compose import AnyConfig, compose_config, groups_of, own_presets, presets_of
from icrl.config.options import walk
from icrl.config.root import Config
from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.point_game.options import PlayersConfig
from icrl.runs.device import ran_out
from icrl.runs.distributed import check_alone
from icrl.runs.processes import close_outputs, open_outputs

_BAD_INPUT = 2
_SHARED = ("src.train_gpt", "src.train_ilql", "src.extract_policy")  # programs for several processes
_REFUSES = ("src.train_agents", "src.finetune")  # programs that say themselves why not
LARGE = {  # by program: the options that determine most of its memory
    "src.pipeline": "source.num_learners, trainer.mini_batch_size, evaluation.num_streams",
    "src.train_agents": "source.num_learners, source.num_envs, source.unroll_length",
    "src.train_gpt": "trainer.mini_batch_size, model.context_len, model.embed_dim",
    "src.train_ilql": "trainer.mini_batch_size, model.context_len, encoder.embed_dim",
    "src.extract_policy": "trainer.mini_batch_size, model.context_len, model.embed_dim",
    "src.finetune": "finetune.num_streams, finetune.trial_steps, model.embed_dim",
    "src.evaluate": "evaluation.num_streams, evaluation.num_train_streams, evaluation.num_bootstrap",
    "src.search_params": "search.num_learners, source.num_envs",
    "src.export_histories": "the number of histories",
    "src.study": "study.num_workers",
    "src.train_players": "training.num_games, replay.size, the batch_size of host and agent",
}


def run_stage(main: Callable[[Config], object], module: str, meaning: str) -> None:
    """Run `main` of `module` with the configuration from the command line; `--help` explains every option. Exits with
    code 2 and one line on a `PipelineError`, a lack of memory or an `OSError`. Exits with 130 on an interrupt, 143
    after a requested stop, and 141 if an output has lost its reader."""
    _run(main, Config, module, meaning)


def run_players(main: Callable[[PlayersConfig], object], module: str, meaning: str) -> None:
    """Run `main` with the configuration of `train_players`, as `run_stage` does."""
    _run(main, PlayersConfig, module, meaning)


def _run(main: Callable[[AnyConfig], object], root: type[AnyConfig], module: str, meaning: str) -> None:
    open_outputs()
    arguments = sys.argv[1:]
    report, threading.excepthook = threading.excepthook, _report_of_thread
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # asks a training loop to save; elsewhere it must not end the run
    try:
        if {"--help", "-h"} & set(arguments):
            others = [argument for argument in arguments if argument not in ("--help", "-h")]
            print(help_text(module, meaning, root, others))
        else:
            _check_form(arguments)
            if module not in (*_SHARED, *_REFUSES):
                check_alone(module, "its updates are too small to be shared; several runs at a time need a name= each")
            config = compose_config(root, arguments)
            if "seed=null" in arguments:
                print(f"seed={config.seed}")
            main(config)
        sys.stdout.flush()  # raise write errors here
    except (PipelineError, OSError) as error:  # an OSError has a clear message of its own
        if isinstance(error, BrokenPipeError) and close_outputs():
            sys.exit(141)  # as shells report SIGPIPE
        _refuse(str(error))
    except (MemoryError, RuntimeError, OverflowError, ValueError) as error:
        if not ran_out(error):
            raise
        _refuse(f"{module} needs more memory than is free: lower {LARGE[module]}, or other large options. {error}")
    except Stopped as end:
        tqdm.write(str(end), file=sys.stderr)
        sys.exit(143)  # as shells report SIGTERM, so that a chain of stages stops here
    except KeyboardInterrupt:
        tqdm.write("interrupted: the same command continues", file=sys.stderr)
        sys.exit(130)
    finally:
        close_outputs()
        threading.excepthook = report


def _check_form(arguments: Sequence[str]) -> None:
    if flags := [argument for argument in arguments if argument.startswith("-")]:
        raise ConfigError(f"{flags[0]}: options are written KEY=VALUE; --help lists them")
    if len(presets := [argument for argument in arguments if argument.startswith("experiment=")]) > 1:
        raise ConfigError(f"{' '.join(presets)}: only one preset of a group can be chosen")


def _refuse(message: str) -> NoReturn:
    tqdm.write(f"error: {' '.join(message.splitlines())}", file=sys.stderr)  # not inside a progress bar
    sys.exit(_BAD_INPUT)


def _report_of_thread(failure: threading.ExceptHookArgs) -> None:
    if not isinstance(failure.exc_value, OSError):  # write errors in TensorBoard's thread reach the main one later
        threading.__excepthook__(failure)


def help_text(module: str, meaning: str, root: type[AnyConfig], arguments: Sequence[str] = ()) -> str:
    """Help text for the choices in `arguments`: usage and every option with meaning, allowed values and value. If they
    name only a group, the presets of that group, each with the first comment of its file."""
    groups, own = groups_of(root), own_presets(arguments)
    lines: list[str] = []
    for group in (argument for argument in arguments if argument in groups):
        lines.append(f"{group}=NAME, NAME one of:")
        for name, path in presets_of(group, own).items():
            page = path.read_text().splitlines()
            said = [line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), page) if "@" not in line]
            lines.append(f"  {name:20} {' '.join(said)}".rstrip())
    if lines:
        return "\n".join(lines)
    lines = [f"usage: python -m {module} [KEY=VALUE ...]", "", meaning, "", "Presets (--help GROUP says what each is):"]
    lines += [f"  {group}={'|'.join(presets_of(group, own))}" for group in groups]
    lines += ["", "Options, with their values (one configuration describes all stages; give each the same):"]
    options = walk(compose_config(root, arguments))
    for group, of_group in groupby(options, key=lambda option: option[0].rpartition(".")[0]):
        lines += [""] if group else []
        for key, value, declared in of_group:
            explained = f"{declared.meaning} ({declared.allowed}; stage {declared.stages})"
            wrapped = textwrap.wrap(explained, 100, initial_indent="      ", subsequent_indent="      ")
            lines += [f"  {key}={value}", *wrapped]
    return "\n".join(lines)
