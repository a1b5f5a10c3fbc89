"""Page of all options."""

from icrl.config.compose import CHOICES, load_config
from icrl.config.options import walk
from icrl.config.options_page import page, table
from icrl.config.paths import PROJECT


def test_the_page_in_the_docs_is_not_stale() -> None:
    assert (PROJECT / "docs/settings.md").read_text() == page() + "\n", "run `make docs`"


def test_every_option_has_a_row_with_its_meaning_and_stages_and_every_choice_a_section() -> None:
    text = table(load_config()).replace("\\|", "|")
    for key, _, option in walk(load_config()):
        assert f"| `{key}` | {option.meaning} | {option.allowed} |" in text and f"| {option.stages} |" in text
    for group, choices in CHOICES.items():
        named = {name for name in choices if f"of `{group}.name={name}`" in page()}
        assert {choices[name] for name in named} == set(choices.values())
