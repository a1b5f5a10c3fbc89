"""Page of all options, made from their declarations: `python docs/options_page.py > docs/settings.md`."""

import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import NamedTuple

from icrl import extensions
from icrl.app.compose import compose_config, presets_of
from icrl.app.root import CHOICES, Config
from icrl.config.options import Options, RootOptions, walk

_COLUMNS = """
| option | meaning | allowed | default | stages | may change |
|---|---|---|---|---|---|"""
LONGEST = 120  # characters of a default that are shown
_HEAD = """# Settings

Every option of the project. This page is generated from the option models (`make docs`); `--help` of every program
prints the same. Options are given as `KEY=VALUE` on the command line, or in a preset under `src/icrl/conf/`.

*Stages*: 1 `train_agents`, 2 `train_gpt`, 3 `finetune`, 4 `evaluate`; others are programs of extensions. *May change*:
whether a continued run may have another value than before; *length*: it may, unless a schedule depends on the length of
the run ([longer training](trainer.md#longer-training)). *Schedule*: instead of a number, a mapping that says how the
value changes ([schedules](trainer.md#schedules)). An option that only some choices of a group have begins with their
names. *Others differ*: the default is that of the first choice that has the option.
"""


class Row(NamedTuple):
    """Option of one or several choices of a group."""

    meaning: str
    allowed: str
    stages: str
    change: str
    defaults: dict[str, str]  # by choice

    def cells(self, key: str, choices: Collection[str]) -> tuple[str, ...]:
        """Cells of the table of `key`, whose group has these `choices`."""
        named = "" if len(self.defaults) == len(choices) else f"*{', '.join(self.defaults)}*: "
        first, *others = dict.fromkeys(self.defaults.values())
        shown = f"`{first}`" + (", others differ" if others else "")
        return f"`{key}`", named + self.meaning, self.allowed, shown, self.stages, self.change


def group_table(key: str, configs: Mapping[str, Options], known: Collection[str] = ()) -> list[str]:
    """Lines of the table of a group, "" for plain options, from one configuration for each of its choices, by name;
    without rows in `known`."""
    rows: dict[tuple[str, ...], Row] = {}
    for choice, config in configs.items():
        for name, value, option in walk(config):
            if name.rpartition(".")[0] != key:
                continue
            allowed = f"one of {', '.join(configs)}" if name == f"{key}.name" else option.allowed
            change = "yes" if option.may_change else "length" if option.is_budget else ""
            new = Row(option.meaning, allowed, option.stages, change, {})
            default = textwrap.shorten(str(value), LONGEST, placeholder=" ...")
            rows.setdefault((name, *new[:-1]), new).defaults[choice] = default
    cells = [row.cells(name, configs) for (name, *_), row in rows.items()]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in of_row)} |" for of_row in cells]
    return [line for line in lines if line not in known]


def sections(root: type[RootOptions], only: Collection[str] = (), known: Collection[str] = ()) -> Iterator[str]:
    """Markdown of the options of `root`, or of the groups and plain options in `only`, a section for each;
    without rows in `known`."""
    config = compose_config(root, [])
    groups = dict.fromkeys(key.rpartition(".")[0] for key, _, _ in walk(config))
    for group in groups:
        if group and only and group not in only:
            continue
        configs = {"": config}
        if group in CHOICES:
            configs = {getattr(config, group).name: config}
            for other in (compose_config(root, [f"{group}={preset}"]) for preset in presets_of(group)):
                configs.setdefault(getattr(other, group).name, other)
        lines = group_table(group, configs, known)
        if not group and only:
            lines = [line for line in lines if line.split("`")[1] in only]
        title = f"`{group}`: {type(config).model_fields[group].description}" if group else "The run"
        if lines:
            yield "\n".join(["", f"## {title}", _COLUMNS, *lines]) + "\n"


def page() -> str:
    """Whole page: the options of the core, and those that programs of extensions add."""
    parts, seen = [*sections(Config)], {*Config.model_fields}
    known = {line for part in parts for line in part.splitlines() if line.startswith("| `")}
    for name, module in extensions.programs().items():
        if (root := getattr(import_module(module), "OPTIONS", Config)) is Config:
            continue
        more = [key for key in root.model_fields if key not in seen] if issubclass(root, Config) else []
        if more or not issubclass(root, Config):
            parts += [f"\n# Settings of `{name}`\n\n{root.__doc__}\n", *sections(root, more, known)]
            seen |= {*more}
    return _HEAD + "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
