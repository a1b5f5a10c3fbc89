"""A cell of a study whose models are trained by two processes of torchrun, of which one is killed."""

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import torch
from harness import TINY
from kin import all_gone, family
from toy import weights_of

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.extensions.scaling.units import TORCHRUN, environment
from icrl.extensions.studies.plan import plan
from icrl.extensions.studies.programs.study import main
from icrl.programs import train_gpt
from icrl.runs.files import read_json

SMALL = [option for option in TINY if not option.startswith(("name=", "num_threads="))]
SMALL += ["name=mine", "trainer.evaluate=false", "evaluation.checkpoint=last", "source.evaluate=false"]
SMALL += ["evaluation.temperatures=[]", "evaluation.ablations=false", "device.amp_dtype=none"]
SMALL += ["model.residual_dropout=0", "model.attention_dropout=0", "trainer.num_iterations=120"]
SMALL += ["checkpoints.checkpoint_interval=20", "study.seeds=[0]", "study.variants=[{label: one, set: []}]"]
MODEL = "logs/mine-one-seed0/gpt"


def options(root: Path, *more: str) -> list[str]:
    return [*SMALL, f"root={root}", *more]


def ranks_of(pid: int) -> list[int]:
    """Processes of torchrun below `pid`, in the order of their ranks."""
    found = {}
    for child in family(pid):
        try:
            lines = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {line: child for line in lines if line.startswith(b"RANK=")}
    return [found[line] for line in sorted(found)]


def kill_the_writer(root: Path, copy: Path, killed: list[int]) -> None:
    """Copy `root` once the model has a checkpoint, while both processes stand still, and kill the first of them."""
    end = time.monotonic() + 200
    while not [*(root / MODEL).glob("last-*.json")] and time.monotonic() < end:
        time.sleep(0.01)
    ranks = ranks_of(os.getpid())
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    shutil.copytree(root, copy)
    os.kill(ranks[0], signal.SIGKILL)
    os.kill(ranks[1], signal.SIGCONT)
    killed.extend(ranks)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_process_of_a_cell_changes_no_bit(tmp_path):
    """The cell goes on by itself to the bits of a plain resume from the same checkpoints, and to what one process
    learns from the same batches, up to rounding."""
    root, copy, killed = tmp_path / "cell", tmp_path / "copy", list[int]()
    killer = threading.Thread(target=kill_the_writer, args=(root, copy, killed))
    killer.start()
    folder = main(options(root, "launch.num_processes=2"))
    killer.join()
    assert len(killed) == 2 and all_gone(killed)
    (row,) = read_json(folder / "results.json")["rows"]
    assert row["updates"] == 120 and (root / "logs/mine-one-seed0/evaluation/results.json").exists()

    program, *given = next(job for job in plan(options(copy)).jobs if job.needs).commands[0]
    steps = sorted(int(path.stem.removeprefix("last-")) for path in (copy / MODEL).glob("last-*.json"))
    assert program == "train_gpt" and 20 <= steps[-1] < 120, "it was killed between checkpoints"
    subprocess.run([*TORCHRUN, "2", "0", program, *given], env=environment(), check=True)
    ours, theirs = weights_of(root / MODEL), weights_of(copy / MODEL)
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        assert torch.equal(torch.as_tensor(weight), torch.as_tensor(ours[name])), name

    shutil.rmtree(copy / "logs/mine-one-seed0")
    train_gpt.main(load_config(given))
    torch.testing.assert_close(ours, weights_of(copy / MODEL), rtol=0, atol=1e-4)  # Adam amplifies rounded zeros


def test_processes_that_cannot_share_a_batch_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"study\.variants, one: trainer\.mini_batch_size=4 must be a multiple of 3 "):
        plan(options(tmp_path, "launch.num_processes=3", "trainer.gradient_accumulation_steps=1"))
