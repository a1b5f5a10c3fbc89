"""Options of teachers that do not fit, and the streams that they are evaluated on."""

from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import torch
from harness import refusal
from installed import needs
from refusals import check_refusal, refusals

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.extensions.experts import teachers
from icrl.sources import source_class

CART = "env=gymnasium_cart_pole"


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_conflicts_are_refused_in_one_line(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


@needs("from_gymnasium")
def test_wrong_options_of_a_teacher_are_refused_before_any_work(tmp_path: Path) -> None:
    for options, message in (
        (("env=dark_room", "source=taught"), "env.name=dark_room has no env.task_visible"),
        ((CART, "source=taught", "source.expert=['source=ppo','source.clipp=1']"), "source.clipp"),
        ((CART, "source=taught", "source.expert=['source=taught']"), "a teacher must learn by itself"),
        ((CART, "source=noise_distillation", "source.wrong_task=0.5"), "source.wrong_task=0.5 needs a teacher"),
    ):
        assert message in refusal("train_agents", tmp_path, *options, preset=())
        assert not list(tmp_path.glob("histories/*"))


@pytest.mark.parametrize(("num_teachers", "streams", "fits"), [(1, 3, True), (4, 2, True), (3, 6, True), (3, 2, False)])
def test_streams_of_evaluations_divide_among_the_learners_of_a_teacher(
    monkeypatch: pytest.MonkeyPatch, num_teachers: int, streams: int, fits: bool
) -> None:
    """Two learners per task imitate `num_teachers` teachers on each of two tasks."""
    few = ("source.num_learners=2", "source.num_envs=6", "source.num_env_steps=12000", "source.history_steps=12000")
    options = ("source=noise_distillation", "source.teacher=them", *few, "source.evaluate=true")
    config = load_config([*options, f"evals.num_eval_environments={streams}"])
    with closing(make_env(config.env)) as env:
        seeds = torch.arange(2 * num_teachers)
        agents = source_class("a2c")(load_config().source, env.spec, seeds, torch.device("cpu"))
        monkeypatch.setattr(teachers, "agents_of_teacher", lambda *_: agents)
        fields = "source.num_learners=2 x evals.num_eval_environments=2 .* 3 learners .*source.teacher=them"
        with nullcontext() if fits else pytest.raises(ConfigError, match=fields):
            assert teachers.trained_agents(config, "them", env.all_tasks()[:2]) is agents


def test_without_its_teacher_a_pupil_cannot_live_on_another_task() -> None:
    assert load_config(["source=noise_distillation"]).source.alone() == {}
    assert load_config(["source=noise_distillation", "source.teacher=them"]).source.alone() is None
