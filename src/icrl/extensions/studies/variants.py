"""Variants of a study as they are written, and options as texts on a command line."""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from icrl.app.compose import groups_of
from icrl.app.root import Config
from icrl.config.options import in_words, refuse
from icrl.contracts import ConfigError

# Options that the study sets for each run, and those of the study that do so.
OF_STUDY = {"seed": "study.seeds", "histories": "name", "run": "name", "num_threads": "launch.num_workers"}
OF_RUNS = ("name", "root", "study", "launch")  # besides, that no variant sets


class Published(BaseModel, strict=True, extra="forbid"):
    """Result of a publication: the total reward of a life, or the return of its last or any other episode."""

    label: Annotated[str, "the name of a policy, ours if it is the same"]
    value: Annotated[float, "a number"]
    source: Annotated[str, "a publication"]
    measure: Literal["total", "last"] | Annotated[int, Field(ge=1)] = "total"


class Variant(BaseModel, strict=True, extra="forbid"):
    """Options of its runs, its place in a plot or the worlds of its evaluations, and published results."""

    label: Annotated[str, Field(pattern="[A-Za-z0-9]"), "a text with letters or digits"]
    set: Annotated[list[str], "a list of KEY=VALUE"] = []
    x: Annotated[float | str | None, "a number, or a name"] = None
    line: Annotated[Any, "a name"] = ""
    test: Annotated[dict[Any, list[str]], Field(min_length=1), "worlds, a label and a list of KEY=VALUE each"] = {
        "": []
    }
    published: Annotated[
        list[Published], "a list of `label`, `value` (a float), `source` and `measure` (total, last or an int >= 1)"
    ] = []

    @property
    def slug(self) -> str:
        """The label as part of a folder's name."""
        return slug_of(self.label)


def slug_of(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def read_variant(written: dict[str, Any]) -> Variant:
    """The variant as `written` under `study.variants`; raises `ConfigError` for what it does not allow."""
    where = f"study.variants, {written.get('label') or written}: "
    try:
        variant = Variant.model_validate(written)
    except ValidationError as error:
        raise ConfigError(in_words(error, Variant, written, where)) from error
    placed = variant.x is not None or variant.line
    refuse(
        "test" in written and placed, f"{where}`x` and `line` cannot be given with `test`, whose labels are the places"
    )
    slugs = [slug_of(str(label)) for label in variant.test]
    refuse(len({*slugs}) < len(slugs), f"{where}labels of `test` must differ in letters or digits")
    for texts in (variant.set, *variant.test.values()):
        check_not_reserved(texts, (*OF_STUDY, *OF_RUNS))
    return variant


def check_not_reserved(options: Iterable[str], reserved: Collection[str]) -> None:
    """Raise `ConfigError` for an option of a group that is `reserved` for the study."""
    for option in options:
        group, key = group_of(option), option.lstrip("+").partition("=")[0]
        instead = f"give {OF_STUDY.get(group, key)}= to the study"
        refuse(group in reserved, f"{option}: a study sets this for all of its runs; {instead}")


def typed(key: str, text: str) -> str:
    """`KEY=TEXT` as on a command line, in quotes if the text has more than letters, digits and signs of a name."""
    if re.fullmatch(r"[\w.-]+", text, re.ASCII):
        return f"{key}={text}"
    doubled = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text)  # of backslashes, only those before a quote are escaped
    escaped = doubled.replace("'", "\\'")
    return f"{key}='{escaped}'"


def group_of(option: str) -> str:
    return re.split("[.=]", option.lstrip("+~"))[0]


def groups(kind: type[Config]) -> set[str]:
    return {*kind.model_fields, *groups_of(kind.page)}
