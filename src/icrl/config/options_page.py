"""Generated page of all options: `make docs` writes it to docs/settings.md."""

import textwrap
from collections.abc import Collection, Iterable

from icrl.config.compose import CHOICES, load_config, load_players_config, presets_of
from icrl.config.options import Options, walk

_COLUMNS = "| option | meaning | allowed | default | stages | may change |"
LONGEST = 120  # characters of a default that are shown
_HEAD = """# Settings

Every option of the project. This page is generated from the option models (`make docs`); `--help` of every program
prints the same. Options are given as `KEY=VALUE` on the command line, or in a preset under `src/icrl/conf/`.

*Stages*: 1 `train_agents`, 2 `train_gpt`, 3 `evaluate`; *search* `search_params`, *export* `export_histories`, *study*
`study`; *players* `train_players`. *May change*: whether a continued run may have another value than before.
*Schedule*: instead of a number, a mapping that says how the value changes ([schedules](trainer.md#schedules)).
"""
_PLAYERS = """
# Settings of `train_players`

Host and agent of the polyhedra game ([training](point_game.md#training-both-players-python--m-srctrain_players)) have a
configuration of their own.
"""


def table(config: Options, groups: Collection[str] | None = None) -> str:
    """Markdown of the options of `config`, one section for each group, or only for `groups` if given."""
    lines: list[str] = []
    section = None
    for key, value, option in walk(config):
        head = key.rpartition(".")[0]
        if groups is not None and head not in groups:
            continue
        if head != section:
            section = head
            lines += [
                "",
                f"## {_title(config, head)}",
                "",
                "| option | meaning | allowed | default | stages | may change |",
            ]
            lines += ["|---|---|---|---|---|---|"]
        shown = f"`{textwrap.shorten(str(value), LONGEST, placeholder=' ...')}`"
        cells = (f"`{key}`", option.meaning, option.allowed, shown, option.stages, "yes" if option.may_change else "")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _title(config: Options, group: str) -> str:
    if not group:
        return "The run"
    of_choice = f" of `{group}.name={getattr(config, group).name}`" if group in CHOICES else ""
    return f"`{group}`: {type(config).model_fields[group].description}{of_choice}"


def page() -> str:
    """Whole page: the default configuration, the other choices of each group with the defaults of the first preset of
    each, and the options of `train_players`."""
    config = load_config()
    tables = [table(config)]
    for group in CHOICES:
        shown = {getattr(config, group).name}
        for choice in _presets(group):
            other = load_config([choice])
            if getattr(other, group).name not in shown:
                shown.add(getattr(other, group).name)
                tables.append(table(other, {group}) + "\n")
    return _HEAD + tables[0] + "\n" + "".join(tables[1:]) + _PLAYERS + table(load_players_config()) + "\n"


def _presets(group: str) -> Iterable[str]:
    return (f"{group}={name}" for name in presets_of(group))


if __name__ == "__main__":
    print(page())
