"""The table of all options, from their declarations.

python -m icrl.config.options_page > docs/settings.md
"""

import textwrap
from dataclasses import fields

from icrl.config.compose import CONF, load_config, load_players_config
from icrl.config.options import allowed, stages_of, walk
from icrl.config.players_schema import PlayersConfig
from icrl.config.root import Config

LONGEST = 120  # characters of a default that are shown
KINDS = ("env", "source")  # groups whose options depend on their `name`
_PLAYERS = """
# Settings of `train_players`

Host and agent of the polyhedra game ([training](point_game.md#training-both-players-python--m-srctrain_players)) have a
configuration of their own.
"""

_HEAD = """# Settings

Every option of the project. This page is generated from the declarations (`make docs`); the same is printed by `--help`
of every stage. Options are given as `KEY=VALUE` on the command line, or in a preset under `src/icrl/conf/`.

*Stages*: 1 `train_agents`, 2 `train_gpt`, 3 `evaluate`; *search* `search_params`, *export* `export_histories`, *study*
`study`; *players* `train_players`. *Anew*: whether a continued run may have another value than the run before it.
*Schedule*: instead of a number, a mapping that says how the value changes ([schedules](trainer.md#schedules)).
"""


def table(config: Config | PlayersConfig, groups: set[str] | None = None) -> str:
    """Markdown of the options of `config`, one section for each group; of `groups` alone, where they are given."""
    meanings = {field.name: field.metadata["meaning"] for field in fields(config)}
    lines: list[str] = []
    section = None
    for key, value, field in walk(config):
        head = key.rpartition(".")[0]
        if groups is not None and head not in groups:
            continue
        if head != section:
            section = head
            of_kind = f" of `{head}.name={getattr(config, head).name}`" if head in KINDS else ""
            title = f"`{head}`: {meanings[head]}{of_kind}" if head else "The run"
            lines += ["", f"## {title}", "", "| option | meaning | allowed | default | stages | anew |"]
            lines += ["|---|---|---|---|---|---|"]
        shown = f"`{textwrap.shorten(str(value), LONGEST, placeholder=' ...')}`"
        anew = "yes" if field.metadata["may_change"] else ""
        cells = (f"`{key}`", field.metadata["meaning"], allowed(field), shown, stages_of(config, key), anew)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page: the default configuration, then the options of the other worlds and of the other sources, with
    the defaults of the first preset of each, then those of `train_players`."""
    config = load_config()
    tables = [table(config)]
    for group in KINDS:
        shown = {getattr(config, group).name}
        for path in sorted((CONF / group).glob("*.yaml")):
            other = load_config([f"{group}={path.stem}"])
            if getattr(other, group).name not in shown:
                shown.add(getattr(other, group).name)
                tables.append(table(other, {group}) + "\n")
    return _HEAD + tables[0] + "\n" + "".join(tables[1:]) + _PLAYERS + table(load_players_config()) + "\n"


if __name__ == "__main__":
    print(page())
