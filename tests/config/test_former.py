"""Options that earlier versions had: records are read without them, and commands may not give them."""

from collections.abc import Iterator
from typing import Any

import pytest

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.modules import load_plugins, recorded_options
from icrl.config.options import Options
from icrl.contracts import ConfigError, PipelineError
from icrl.nn.gpt import GPTConfig
from icrl.runs.files import check_same


def kinds(kind: type[Options]) -> Iterator[type[Options]]:
    for child in kind.__subclasses__():
        yield from (child, *kinds(child))


def record(group: str, **more: Any) -> dict[str, Any]:
    """Record of an earlier version, with `more` options in a group."""
    found = load_config().model_dump()
    return found | {group: found[group] | more}


def test_no_class_has_a_former_option_of_its_own() -> None:
    load_plugins()
    for kind in kinds(Options):
        assert not kind.model_fields.keys() & vars(kind).get("former", {}).keys(), kind


@pytest.mark.parametrize(
    ("group", "name", "usual", "other"),
    [
        ("model", "activation", "gelu", "relu"),
        ("data", "development_tasks", [], [3]),
        ("optimizer", "momentum", 0.95, 0.5),
    ],
)
def test_a_record_with_the_value_of_this_version_is_read_and_another_is_refused_by_name(
    group: str, name: str, usual: Any, other: Any
) -> None:
    assert recorded_options(Config, record(group, **{name: usual}), "a run") == load_config()
    with pytest.raises(PipelineError, match=rf"^a run records .*{group}\.{name}=.*this version has no such option"):
        recorded_options(Config, record(group, **{name: other}), "a run")
    check_same(load_config(), record(group, **{name: usual}), [group], "logs/here")
    with pytest.raises(PipelineError, match=rf"^logs/here was made with {group}\.{name}="):
        check_same(load_config(), record(group, **{name: other}), [group], "logs/here")
    with pytest.raises(ConfigError, match=rf"^{group}\.{name}: only earlier versions had this option; leave it out$"):
        load_config([f"{group}.{name}={usual}"])


def test_options_without_an_effect_may_have_had_any_value() -> None:
    assert recorded_options(Config, record("trainer", empty_cache=True), "a run") == load_config()
    smooth = GPTConfig().model_dump() | {"activation": "gelu"}
    assert recorded_options(GPTConfig, smooth, "a run", "model") == GPTConfig()


def test_an_option_that_a_rule_refuses_is_named_with_its_value() -> None:
    with pytest.raises(PipelineError, match=r"^a run records an option that is not allowed: .*learning_rate=-1$"):
        recorded_options(Config, record("optimizer", learning_rate=-1), "a run")
