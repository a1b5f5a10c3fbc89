"""Page of all options, made from their declarations: `python docs/options_page.py > docs/settings.md`."""

import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from icrl import extensions
from icrl.app.compose import compose_config, presets_of
from icrl.app.root import CHOICES, Config
from icrl.config.options import Options, RootOptions, walk

_COLUMNS = """| option | meaning | allowed | default | stages | may change |
|---|---|---|---|---|---|"""
LONGEST = 120  # characters of a default that are shown
_HEAD = """# Settings

Every option of the project, one table for each group. Give options as `KEY=VALUE` on the command line, or in a preset
under `src/icrl/conf/`; `--help GROUP` prints the same texts. `make docs` writes this page from the option models.

*Stages*: 1 `train_agents`, 2 `train_gpt`, 3 `finetune`, 4 `evaluate`; others are programs of extensions. Their own
options come last; all but `train_players` take those of the other groups too. *May change*: whether a continued run may
have another value than before; *length*: it may, unless a schedule depends on the length of the run ([longer
training](trainer.md#longer-training)). *Schedule*: instead of a number, a mapping that says how the value changes
([schedules](trainer.md#schedules)). An option that only some choices of a group have begins with their names. *Others
differ*: the default is that of the first choice that has the option.
"""


@dataclass
class Row:
    """Option of one or several choices of a group, or the same option of several groups (`keys`) or programs."""

    keys: list[str]
    choices: Collection[str]  # of the group
    meaning: str
    allowed: str
    stages: list[str]
    change: str
    defaults: dict[str, str] = field(default_factory=dict)  # by choice

    def cells(self) -> tuple[str, ...]:
        named = "" if len(self.defaults) == len(self.choices) else f"*{', '.join(self.defaults)}*: "
        first, *others = dict.fromkeys(self.defaults.values())
        shown, keys = f"`{first}`" + (", others differ" if others else ""), ", ".join(f"`{key}`" for key in self.keys)
        return keys, named + self.meaning, self.allowed, shown, ", ".join(self.stages), self.change

    def is_like(self, other: "Row") -> bool:
        """Whether both are one option in two groups or programs."""
        ours, theirs = self.cells(), other.cells()
        return (ours[1:4], ours[5]) == (theirs[1:4], theirs[5])


Group = tuple[str, str, list[Row]]  # name, "" for plain options; meaning; rows


def group_rows(key: str, configs: Mapping[str, Options]) -> list[Row]:
    """Rows of a group, "" for plain options, from one configuration for each of its choices, by name."""
    rows: dict[tuple[str, ...], Row] = {}
    for choice, config in configs.items():
        for name, value, option in walk(config):
            if name.rpartition(".")[0] != key:
                continue
            allowed = f"one of {', '.join(configs)}" if name == f"{key}.name" else option.allowed
            change = "yes" if option.may_change else "length" if option.is_budget else ""
            new = Row([name], [*configs], option.meaning, allowed, [option.stages], change)
            default = textwrap.shorten(str(value), LONGEST, placeholder=" ...")
            same = (name, option.meaning, allowed, option.stages, change)
            rows.setdefault(same, new).defaults[choice] = default
    return [*rows.values()]


def groups(root: type[RootOptions], only: Collection[str] = ()) -> Iterator[Group]:
    """Groups of `root`, or the groups and plain options in `only`."""
    config = compose_config(root, [])
    for group in dict.fromkeys(key.rpartition(".")[0] for key, _, _ in walk(config)):
        if group and only and group not in only:
            continue
        configs = {"": config}
        if group in CHOICES:
            configs = {getattr(config, group).name: config}
            for other in (compose_config(root, [f"{group}={preset}"]) for preset in presets_of(group)):
                configs.setdefault(getattr(other, group).name, other)
        rows = group_rows(group, configs)
        if not group and only:
            rows = [row for row in rows if row.keys[0] in only]
        if rows:
            yield group, str(type(config).model_fields[group].description) if group else "", rows


def merged(rows: list[Row], known: Mapping[str, Row], above: list[Row]) -> list[Row]:
    """The `rows` that are new: those of `known` options get the stages, those like one `above` the key."""
    new = list[Row]()
    for row in rows:
        key = row.keys[0]
        name = key.rpartition(".")[2]
        alike = [one for one in above if row.is_like(one) and row.stages == one.stages and one.keys[0].endswith(name)]
        if key in known and row.is_like(known[key]):
            known[key].stages += row.stages
        elif "." in key and alike:
            alike[0].keys.append(key)
        else:
            new.append(row)
    return new


def line(*cells: str) -> str:
    """Line of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def title_line(name: str, meaning: str) -> str:
    """Line above the options of a group, or of a program, in a table of several."""
    return line(f"**`{name}`**", f"**{meaning}**" if meaning else "", *[""] * 4)


def programs(known: Mapping[str, Row]) -> Iterator[tuple[str, list[Group]]]:
    """Programs of extensions with options of their own, each with its groups; `known` are the options of the core."""
    seen = {*Config.model_fields}
    for name, module in extensions.programs().items():
        if (root := getattr(import_module(module), "OPTIONS", Config)) is Config:
            continue
        more = [key for key in root.model_fields if key not in seen] if issubclass(root, Config) else []
        if more or not issubclass(root, Config):
            above, parts = list[Row](), list[Group]()
            for group, meaning, rows in groups(root, more):
                if new := merged(rows, known, above):
                    parts.append((group, meaning, new))
                    above += new
            yield name, parts
            seen |= {*more}


def page() -> str:
    """Whole page: the options of the core, and those that programs of extensions add. Programs with one group of
    options share a table, the last one."""
    core = [*groups(Config)]
    of_programs = [*programs({row.keys[0]: row for _, _, rows in core for row in rows})]  # adds stages to the core's
    parts, others = list[str](), ["\n## Settings of other programs", _COLUMNS]
    for group, meaning, rows in core:
        title = f"`{group}`: {meaning}" if group else "The run"
        parts += [f"\n## {title}", _COLUMNS, *(line(*row.cells()) for row in rows)]
    for name, sections in of_programs:
        if len(sections) == 1:
            others += [title_line(name, sections[0][1]), *(line(*row.cells()) for row in sections[0][2])]
            continue
        parts += [f"\n## Settings of `{name}`", _COLUMNS]
        for group, meaning, rows in sections:
            parts += [title_line(group, meaning)] if group else []
            parts += [line(*row.cells()) for row in rows]
    return _HEAD + "\n".join([*parts, *others]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
