"""Plans of studies, for tests of them."""

from functools import cache
from pathlib import Path

from icrl.extensions.scaling.units import Job
from icrl.extensions.studies.plan import Plan, plan

ONE_SEED = ("study.seeds=[0]",)
QUIET = ("trainer.evaluate=false", "evaluation.checkpoint=last", *ONE_SEED)
SMALL = ("experiment=tiny", "name=mine", "trainer.num_iterations=10")


def study(*variants: str, options: tuple[str, ...] = (), root: Path = Path("/tmp/none")) -> Plan:
    return plan([*SMALL, f"root={root}", f"study.variants=[{', '.join(variants)}]", *options])


def variant(label: str, *options: str, more: str = "") -> str:
    quoted = ", ".join(f"'{option}'" for option in options)
    return f"{{label: {label}, set: [{quoted}]{more}}}"


def modules(job: Job) -> list[str]:
    return [command[0] for command in job.commands]


def value(command: list[str], key: str) -> str:
    """What the last of the options that set `key` says."""
    return [option.partition("=")[2] for option in command if option.startswith(f"{key}=")][-1]


@cache
def preset_plan(preset: str) -> Plan:
    return plan([f"study={preset}", "root=/tmp/none"])
