"""Programs that are killed at random moments, start twice at once, or find the disk full or few files allowed: the same
command then ends with the results of a run that nothing disturbed, and no half file and no process is left."""

import shutil
import sys
from functools import partial
from pathlib import Path

import attacks
import pytest
from attacks import Program
from harness import TINY

from icrl import extensions

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
STAGE_ONE = (*TINY, "source.evaluate=false", "evaluation.checkpoint=last")
SHARDS = (*STAGE_ONE, "shard.count=2", "launch.num_workers=2")
PLAYERS = (
    *("players=tiny", "name=tiny", "device=cpu", "num_threads=1", "evaluation.max_moves=3", "training.num_updates=6"),
    *("checkpoints.checkpoint_interval=2", "checkpoints.snapshot_interval=4", "evaluation.eval_interval=4"),
)
STUDY = (  # which sets the threads of its runs
    *(one for one in STAGE_ONE if one != "num_threads=1"),
    *("study.seeds=[0,1]", "study.variants=[{label: one}]", "launch.num_workers=2"),
)
TIMED = tuple(f"logs/tiny/{name}" for name in ("results.json", "table.md", "study.html"))
PROGRAMS = [
    Program("evaluate", TINY, "logs/tiny/evaluation/.lock", ("histories", "logs/tiny/gpt")),
    Program("pipeline", (*TINY, "source.videos_per_task=1"), "histories/tiny/.lock"),
    Program("train_agents", STAGE_ONE, "histories/tiny/.lock"),
]
if "exported" in extensions.NAMES:
    PROGRAMS.append(Program("export_model", TINY, "logs/tiny/export/model.safetensors", ("logs/tiny/gpt",)))
if "formats" in extensions.NAMES:
    export = (*TINY, "format=txt")
    PROGRAMS.append(Program("export_histories", export, "histories/tiny/export/.lock", ("histories",)))
if "scaling" in extensions.NAMES:
    PROGRAMS.append(Program("train_shards", SHARDS, "histories/tiny/.lock"))
if "point_game" in extensions.NAMES:
    PROGRAMS.append(Program("train_players", PLAYERS, "logs/tiny/players/.lock"))
if "studies" in extensions.NAMES:
    PROGRAMS.append(Program("study", STUDY, "logs/tiny/.lock", timed=TIMED))
ATTACKS = {
    **{f"killed by {by.name} at random moments": partial(attacks.kill, by=by) for by in attacks.SIGNALS},
    "started twice at once": attacks.start_twice,
    "with a clock that was set back": attacks.set_clock_back,
    **{name: partial(attacks.start_in, setting=setting) for name, setting in attacks.SYSTEMS.items()},
}


def prepared(program: Program, finished: Path, root: Path) -> Path:
    for folder in program.needs:
        shutil.copytree(finished / folder, root / folder, ignore=shutil.ignore_patterns("export", ".lock"))
    return root


@pytest.fixture(scope="module")
def undisturbed(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Program, dict]:
    """Results of each program, made when they are needed."""

    class Results(dict):
        def __missing__(self, program: Program) -> dict:
            self[program] = attacks.results(program, prepared(program, finished, tmp_path_factory.mktemp(program.name)))
            return self[program]

    return Results()


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_attack(finished, undisturbed, tmp_path, program, attack):
    root = prepared(program, finished, tmp_path / "root")
    ATTACKS[attack](program, root)
    attacks.check_end(program, root, undisturbed[program])
