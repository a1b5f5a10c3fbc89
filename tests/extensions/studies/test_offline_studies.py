"""Studies of offline RL: what is trained for a policy, and what its variants share."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from harness import TINY
from plans import QUIET, modules, preset_plan, study, value, variant

from icrl import extensions
from icrl.app.compose import compose_config, load_config
from icrl.app.root import Config
from icrl.contracts import ConfigError, Json
from icrl.extensions.scaling.units import Job
from icrl.extensions.studies.plan import trained_for
from icrl.extensions.studies.programs.study import main
from icrl.nn.gpt_policy import PolicyConfig
from icrl.runs.device import recorded
from icrl.runs.files import read_json
from icrl.training.policy_gradient import FinetuneConfig

pytestmark = pytest.mark.skipif("offline_rl" not in extensions.NAMES, reason="the programs are an extension")
CRITICS = import_module(extensions.programs().get("train_ilql", "icrl.programs.train_gpt"))

TINIEST = [option for option in TINY if not option.startswith(("name=", "num_threads="))]
TINIEST += ["name=mine", "trainer.evaluate=false", "evaluation.checkpoint=last", "source.evaluate=false"]
TINIEST += ["evaluation.temperatures=[]", "evaluation.ablations=false", "device.amp_dtype=none"]


def options(root: Path, *more: str) -> list[str]:
    return [*TINIEST, f"root={root}", *more]


def run_here(jobs: list[Job], *_: Any) -> dict[str, str]:
    """Run the jobs in this process, which saves the start of others."""
    for program, *given in (command for job in jobs for command in job.commands):
        module = import_module(extensions.programs().get(program, f"icrl.programs.{program}"))
        module.main(compose_config(getattr(module, "OPTIONS", Config), given))
    return {}


def never(jobs: list[Job], *_: Any) -> dict[str, str]:
    assert not jobs, "finished work is repeated"
    return {}


GUIDED = variant("guided", "policy.advantage_scale=2.5")
EXTRACTED = variant("extracted", "policy.model=awr")
CRITIC = variant("critic", "policy.model=critic", "policy.advantage_scale=1")


def test_policies_share_everything_that_is_trained() -> None:
    _, rows, jobs = study(variant("plain"), GUIDED, EXTRACTED, CRITIC, options=QUIET)
    (job,) = [job for job in jobs if job.needs]
    assert job.name == "mine-plain-seed0" and job.updates == 3 * 10
    assert [(command[0], value(command, "name").split("-")[1]) for command in job.commands] == [
        *(("train_gpt", "plain"), ("evaluate", "plain"), ("train_ilql", "plain"), ("evaluate", "guided")),
        *(("extract_policy", "plain"), ("evaluate", "extracted"), ("evaluate", "critic")),
    ]
    assert {value(command, "run") for command in job.commands} == {"mine-plain-seed0"}
    logs = Path("/tmp/none/logs")
    suffixes = ["", "-advantage=2.5", "-policy=awr", "-policy=critic-advantage=1.0"]
    for row, suffix in zip(rows, suffixes, strict=True):
        assert row.folders == [logs / f"mine-{row.variant}-seed0" / f"evaluation{suffix}"]
    own = PolicyConfig(model="awr-hot", advantage_scale=0.5, temperature=1.0, context_kept=0.5)
    parts = [("ilql", "train_ilql"), ("awr-hot", "extract_policy")]
    assert [*trained_for(own, FinetuneConfig()).items()] == parts
    own = PolicyConfig(model="hot", advantage_scale=0.5)
    tuned = FinetuneConfig(experiment_name="hot")
    assert [*trained_for(own, tuned).values()] == ["train_gpt", "finetune", "train_ilql"]
    tuned, own = FinetuneConfig(experiment_name="hot", start="none", kl_coefficient=0), PolicyConfig(model="hot")
    assert [*trained_for(own, tuned).values()] == ["finetune"]
    parts = [["gpt"], ["gpt", "ilql"], ["ilql", "awr"], ["ilql"]]
    assert [row.models for row in rows] == [[[logs / job.name / part for part in needed]] for needed in parts]


def test_a_critic_of_another_kind_has_a_run_of_its_own_and_no_model() -> None:
    other = variant("other", "critic=iql", "policy.model=awr")
    _, rows, jobs = study(EXTRACTED, variant("plain"), other, options=QUIET)
    shared, own = [job for job in jobs if job.needs]
    trained = ["train_ilql", "extract_policy", "evaluate"]
    assert modules(shared) == [*trained, "train_gpt", "evaluate"] and shared.updates == 30
    assert modules(own) == trained and own.updates == 20 and own.needs == shared.needs
    assert {part.parent.name for part in rows[2].models[0]} == {"mine-other-seed0"}
    assert all(compose_config(CRITICS.OPTIONS, command[1:]).critic.separate_value for command in own.commands[:2])
    assert not any(option.startswith("critic") for option in own.commands[2]), "an evaluation has no such option"
    load_config(own.commands[2][1:])


def test_methods_of_offline_rl_cost_the_same_and_were_searched_equally() -> None:
    """An update costs 1 (imitation), 2.1 (critic) or 1.4 (extraction), as `benchmarks` measure. In each world a
    method has one of the four settings that were tried for it."""
    costs = {"train_gpt": 1.0, "train_ilql": 2.1, "extract_policy": 1.4}
    groups = ("source", "data", "model", "objective", "optimizer", "trainer", "device", "policy", "critic", "awr")
    rows, tried = (preset_plan(preset).rows for preset in ("offline", "offline_settings"))
    settings: dict[str, list[Json]] = {}
    for row in (*tried, *rows):
        updates = row.config.trainer.num_iterations
        programs = trained_for(row.config.policy, row.config.finetune).values()
        assert updates * sum(costs[program] for program in programs) == pytest.approx(1400, rel=0.01)
        assert row.config.data.history_len / row.config.source.history_steps == 0.3
        setting = {group: recorded(row.config).get(group) for group in groups}
        if row in tried:
            settings.setdefault(row.line, []).append(setting)
        else:
            assert setting in settings[row.line]
    assert {*map(len, settings.values())} == {4}
    assert {(row.line, row.x) for row in rows} == {(line, row.x) for line in settings for row in rows}
    assert len({row.x for row in rows}) == 3


@pytest.mark.long
def test_policies_share_what_is_trained_for_them(tmp_path):
    """A model, the same guided by a critic, the policy extracted from the critic, and the critic alone."""
    guided, critic = "'policy.advantage_scale=2'", "'policy.model=critic'"
    policies = {"plain": "", "guided": guided, "extracted": "'policy.model=awr'", "alone": f"{critic}, {guided}"}
    variants = ", ".join(f"{{label: {label}, set: [{changes}]}}" for label, changes in policies.items())
    asked = options(tmp_path, "study.seeds=[0]", f"study.variants=[{variants}]")
    rows = read_json(main(asked, run_here) / "results.json")["rows"]
    assert [row["updates"] for row in rows] == [6, 12, 12, 6]
    seconds = {row["variant"]: row["training_seconds"] for row in rows}
    assert seconds["guided"] == pytest.approx(seconds["plain"] + seconds["alone"])
    assert seconds["extracted"] > seconds["alone"] > 0
    trained = [path.parent for path in tmp_path.glob("logs/*/*/finished.json") if path.parent.name != "source"]
    assert set(trained) == {tmp_path / "logs" / "mine-plain-seed0" / part for part in ("gpt", "ilql", "awr")}
    main(asked, never)
    for option in ("critic.expectile=0.6", "encoder.num_layers=2", "awr.inverse_temperature=3.0"):
        with pytest.raises(ConfigError, match=re.escape(option.partition("=")[0])):
            main([*asked, option], never)
