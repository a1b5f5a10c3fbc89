"""Page of all options, made from their declarations: `python docs/options_page.py > docs/settings.md`."""

import sys
import textwrap
from collections.abc import Collection, Iterator
from importlib import import_module
from itertools import groupby

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
value changes ([schedules](trainer.md#schedules)). Tables of further choices of a group list only what differs from the
first.
"""


def table(config: Options, only: Collection[str] = (), known: str = "") -> str:
    """Markdown of the options of `config`, one section for each group, or for the groups and plain options in `only`.
    Rows that are in the text `known` are left out."""
    lines: list[str] = []
    for group, of_group in groupby(walk(config), key=lambda option: option[0].rpartition(".")[0]):
        options = [one for one in of_group if not only or (group or one[0]) in only]
        if not options:
            continue
        title = f"`{group}`: {type(config).model_fields[group].description}" if group else "The run"
        of_choice = f", with `{group}.name={getattr(config, group).name}`" if group in CHOICES else ""
        lines += ["", f"## {title}{of_choice}", _COLUMNS]
        for key, value, option in options:
            shown = f"`{textwrap.shorten(str(value), LONGEST, placeholder=' ...')}`"
            change = "yes" if option.may_change else "length" if option.is_budget else ""
            cells = (f"`{key}`", option.meaning, option.allowed, shown, option.stages, change)
            row = f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
            lines += [row] if row not in known else []
    return "\n".join(lines)


def tables(root: type[RootOptions], only: Collection[str] = ()) -> Iterator[str]:
    """The options of `root`, or those in `only`. Of the other choices of each group only what differs: options that the
    default choice does not have, or that have another default in the first preset of the choice."""
    config = compose_config(root, [])
    yield (first := table(config, only)) + "\n"
    for group in [group for group in CHOICES if group in (only or root.model_fields)]:
        shown = {getattr(config, group).name}
        for other in (compose_config(root, [f"{group}={preset}"]) for preset in presets_of(group)):
            if (name := getattr(other, group).name) not in shown:
                shown.add(name)
                yield table(other, [group], first) + "\n"


def page() -> str:
    """Whole page: the options of the core, and those that programs of extensions add."""
    parts, seen = [*tables(Config)], {*Config.model_fields}
    for name, module in extensions.programs().items():
        if (root := getattr(import_module(module), "OPTIONS", Config)) is not Config:
            more = [key for key in root.model_fields if key not in seen] if issubclass(root, Config) else ()
            described = f"\n# Settings of `{name}`\n\n{root.__doc__}\n"
            parts += [described, *(tables(root, more) if more or not issubclass(root, Config) else ())]
            seen |= {*more}
    return _HEAD + "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
