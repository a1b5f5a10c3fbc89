"""Conflicts among options, met one after the other."""

import re
import shlex
from collections.abc import Sequence
from contextlib import closing, suppress
from importlib import import_module

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.config.modules import command_of
from icrl.config.options import AnyRoot
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import make_env
from icrl.envs.tasks import development_of, split_tasks

_MOST = 19  # conflicts that are reported after the first
_MAKES_TASKS = ("pipeline", "train_agents")  # programs that split the tasks of the configured world


def further_conflicts(first: ConfigError, root: type[AnyRoot], program: str, arguments: Sequence[str]) -> list[str]:
    """The programs that have the option that this one lacks, by the `first` error; the message of every error that a
    command line would meet after that, one by one; and the command that meets none. A message says how it is met (`give
    KEY=VALUE`, or `did you mean KEY?`); after one that does not, there is no such command. Only messages that follow
    from the command line alone are read for this: those of a program that has read files may quote them, and what a
    file says is never taken as an option."""
    messages, corrected, again = _owners(str(first)), list(arguments), _conflict(root, program, arguments)
    if str(again) != str(first):
        return messages
    while isinstance(again, ConfigError) and (correction := corrections(str(again), corrected)) != corrected:
        if len(messages) == _MOST:
            break
        corrected, again = correction, _conflict(root, program, correction)
        messages += [f"       {again}"] if again else []
    if not again:
        messages.append(f"this command satisfies all rules: {command_of(program)} {shlex.join(corrected)}")
    return messages


def _conflict(root: type[AnyRoot], program: str, arguments: Sequence[str]) -> PipelineError | None:
    """Error about the first rule that the options break, if there is one; a `ConfigError` is about options alone."""
    try:
        config = compose_config(root, arguments)
        if isinstance(config, Config) and program in _MAKES_TASKS:
            with closing(make_env(config.env)) as env:
                development_of(env, config, split_tasks(env, config).train)
    except PipelineError as error:
        return error
    return None


def _owners(message: str) -> list[str]:
    """Line with the programs of extensions that have the option that a `message` says is missing, if there are any."""
    if not (missing := re.fullmatch(r"(\w+)[\w.]*: there is no such option", message)):
        return []
    owners = list[str]()
    for name, module in sorted(extensions.programs().items()):
        with suppress(ImportError):  # of packages that only this program needs
            if missing[1] in getattr(import_module(module), "OPTIONS", Config).model_fields:
                owners.append(command_of(name))
    return [f"       {missing[1]} belongs to {', '.join(owners)}"] if owners else []


def corrections(message: str, arguments: Sequence[str]) -> list[str]:
    """The `arguments` changed as `message` says: by the first `give KEY=VALUE ...` in it, or by the key that it
    proposes; unchanged if it says neither."""
    if given := re.search(r"\bgive ((?:[a-z_]+(?:\.\w+)*=[^\s;]*[^\s;,.:)] ?)+)", message):
        new = given[1].split()
        keys = {one.partition("=")[0] for one in new}
        return [one for one in arguments if one.lstrip("+").partition("=")[0] not in keys] + new
    if meant := re.match(r"([\w.]+): there is no such option.*\(did you mean ([\w.]+)\?\)", message):
        return [re.sub(rf"^\+?{re.escape(meant[1])}(?=[.=])", meant[2], one) for one in arguments]
    return list(arguments)
