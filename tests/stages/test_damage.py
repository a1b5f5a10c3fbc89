"""Files that are damaged, of another shape, of another run or program, or renamed: refused in one line, replaced by an
older file, or without any effect on the results of a run."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from harness import DAMAGES, TINY, done, flip, kill_late, refusal, results_of
from installed import EVALUATED_AGENTS, needs

import icrl
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import PipelineError
from icrl.programs import evaluate, train_agents, train_gpt
from icrl.runs import record as run_record
from icrl.runs.files import read_json, write_json

SOURCE, GPT, EVALUATION, HISTORIES = "logs/tiny/source", "logs/tiny/gpt", "logs/tiny/evaluation", "histories/tiny"
MAINS = (train_agents.main, train_gpt.main, evaluate.main)
STAGES = {"train_agents": SOURCE, "train_gpt": GPT}


@pytest.fixture(scope="module", autouse=True)
def cheap() -> Iterator[None]:
    """Without git."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_record, "git_state", lambda _: {"revision": "0", "dirty": False, "diff": ""})
        yield


@pytest.fixture(scope="module")
def tiny() -> Config:
    return load_config([*TINY, "root=here"])


@pytest.fixture
def config(tiny: Config, root: Path) -> Config:
    """Configuration of the copied run."""
    return replace(tiny, root=str(root))


@pytest.fixture(scope="module")
def told(finished: Path, tiny: Config) -> str:
    """Output of the evaluation of an undisturbed run."""
    return run_all(replace(tiny, root=str(finished)), MAINS[2:]).replace(str(finished), "")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, tiny: Config) -> Path:
    """Root of a finished run of another seed."""
    root = tmp_path_factory.mktemp("seed")
    run_all(replace(tiny, seed=1, root=str(root)), MAINS)
    return root


def run_all(config: Config, mains: Sequence[Callable[[Config], Any]]) -> str:
    """Output of the programs, one after the other."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        for main in mains:
            main(config)
    return out.getvalue()


def told_or_refused(config: Config, mains: Sequence[Callable[[Config], Any]] = MAINS) -> tuple[str, str]:
    """Output of the programs, and the refusal of one of them in one line; any other exception fails the test."""
    told, refused = "", ""
    try:
        told = run_all(config, mains)
    except PipelineError as error:
        refused = str(error)
    assert "\n" not in refused.strip() and (not refused or config.root in refused)
    return told, refused


@pytest.fixture(scope="module")
def expected(finished: Path) -> dict[str, Any]:
    """What the undisturbed run left."""
    return results_of(finished)


def check_same_results(root: Path, expected: dict[str, Any], damaged: Sequence[str]) -> None:
    """The results are those of the undisturbed run, except for the damaged files, which no program read."""
    left_out = {f"{name}.damaged" for name in damaged}  # a run.json is put aside
    for path in map(Path, damaged):
        kind, dash, _ = path.name.partition("-")
        left_out.add(str(path.with_name(kind + path.suffix)) if dash else str(path))
    found = results_of(root)
    differ = {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
    assert {name for name in differ if not name.endswith(".png")} <= left_out


FILES = {  # and the programs that read them
    f"{HISTORIES}/manifest.json": MAINS,
    f"{HISTORIES}/reward.npy": MAINS[1:],
    **{f"{SOURCE}/{name}": MAINS[:1] for name in ("last-000000006.pt", "finished.json")},
    **({f"{SOURCE}/evaluations.json": MAINS[:1]} if EVALUATED_AGENTS else {}),
    **{f"{GPT}/last-000000006.{suffix}": MAINS[1:2] for suffix in ("pt", "json")},
    **{f"{GPT}/{name}": MAINS[1:] for name in ("finished.json", "evaluations.json", "best-*.pt", "best-*.json")},
    **{f"{EVALUATION}/{name}": MAINS[2:] for name in ("results.json", "episodes.npz")},
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_of_a_finished_run(expected, root, config, name):
    (path,) = root.glob(name)
    whole, told = path.read_bytes(), run_all(config, FILES[name])
    for damage in ("empty", "cut", "a bit amid"):
        path.write_bytes(DAMAGES[damage](whole))
        found, refused = told_or_refused(config, FILES[name])
        assert refused or found == told, damage
        path.write_bytes(whole)
    check_same_results(root, expected, [])


@pytest.mark.parametrize("stage", STAGES)
def test_an_older_checkpoint_replaces_a_damaged_one(expected, root, stage):
    """Without a good one, a finished run is not started again either: its histories would be overwritten."""
    folder = root / STAGES[stage]
    kept = (folder / "finished.json").read_bytes()
    (folder / "finished.json").unlink()
    flip(folder / "last-000000006.pt", 5000)
    done(stage, root)
    check_same_results(root, expected, [])
    (folder / "finished.json").unlink()
    for state in folder.glob("last-*.pt"):
        flip(state, 5000)
    message = refusal(stage, root)
    assert f"{folder / 'last-000000004.pt'}" in message and "delete it and its .json to continue" in message
    for path in folder.glob("last-*"):
        path.unlink()
    if stage == "train_gpt":
        (folder / "finished.json").write_bytes(kept)
    message = refusal(stage, root)
    assert str(folder) in message and "remove" in message


def test_without_a_manifest_recorded_steps_are_not_overwritten(expected, root):
    """Once it is back, the run continues."""
    kill_late(root / SOURCE, 4)
    manifest = root / HISTORIES / "manifest.json"
    aside = manifest.rename(root / "aside.json")
    assert "restore them" in refusal("train_agents", root)
    aside.rename(manifest)
    done("train_agents", root)
    check_same_results(root, expected, [])


DROPPED = object()
ALSO = {("config", "data"): DROPPED, ("description", "run"): "x"}  # options of a source, a checkpoint of another run
OTHERS = (DROPPED, None, "x", -1, 10**30, 1e400, float("nan"), [], {}, [[[]]], True)


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Path of every value inside, of lists those of the first two."""
    for key in value if isinstance(value, dict) else range(min(len(value), 2)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], *path, key)


def changed(content: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(content))
    *above, last = path
    inner = copy
    for key in above:
        inner = inner[key]
    inner[last] = new
    if new is DROPPED:
        del inner[last]
    return copy


def act(config: Config) -> None:
    icrl.load(Path(config.root) / "logs/tiny").act([4])


def act_exported(config: Config) -> None:
    icrl.load(Path(config.root) / "logs/tiny/export").act([4])


@pytest.mark.parametrize(
    ("name", "reader", "every"),
    [
        *((f"{HISTORIES}/manifest.json", train_gpt.main, 199), (f"{SOURCE}/finished.json", train_agents.main, 31)),
        *((f"{GPT}/finished.json", train_gpt.main, 5), (f"{GPT}/last-000000006.json", train_gpt.main, 199)),
        *((f"{GPT}/best-*.json", evaluate.main, 199), (f"{EVALUATION}/results.json", evaluate.main, 31)),
        *((f"{GPT}/finished.json", act, 5), (f"{GPT}/last-000000006.json", act, 61)),
        pytest.param("logs/tiny/export/config.json", act_exported, 61, marks=needs("exported")),
    ],
)
def test_changed_json_is_refused_or_has_the_effect_of_the_right_one(root, config, name, reader, every):
    """With the right checksum; every so many of all changes."""
    if reader is act_exported:
        done("export_model", root, "evaluation.checkpoint=last")
    (path,) = root.glob(name)
    content, told, refusals = read_json(path), run_all(config, [reader]), 0
    deepest = 2 if name.endswith("results.json") else 9  # whether numbers of curves are numbers is not checked
    found = [place for place in places(content) if len(place) <= deepest]
    changes = [(place, new) for place in found for new in OTHERS][::every]
    changes += [(place, new) for place in found if len(place) == 1 for new in (DROPPED, "x")]
    changes += [(place, new) for place, new in ALSO.items() if place in found]
    for place, new in changes:
        write_json(path, changed(content, place, new))
        again, refused = told_or_refused(config, [reader])
        assert refused or again == told or (name.endswith("results.json") and again), (place, new)
        refusals += bool(refused)
    assert refusals > 2


ALONE = {"finished.json", "evaluations.json", "run.json", "results.json", "episodes.npz", "manifest.json", "reward.npy"}
NAMED = (
    *("is needed here", "was made with", "is damaged", "ended at", "was written as", "of another model"),
    "no finished training",
)


def swapped(root: Path, folder: str) -> list[list[str]]:
    """Files in `folder` that another run also has, checkpoints as pairs."""
    paths = [path for path in sorted((root / folder).rglob("*")) if path.is_file()]
    names = [path.relative_to(root).as_posix() for path in paths if path.name in ALONE]
    states = [path for path in paths if path.suffix == ".pt" and path.name.startswith(("last-", "best-"))]
    pairs = [[path.with_suffix(suffix).relative_to(root).as_posix() for suffix in (".pt", ".json")] for path in states]
    return [*([name] for name in names), *pairs]


READERS = {HISTORIES: MAINS, SOURCE: MAINS[:1], GPT: MAINS[1:], EVALUATION: MAINS[2:]}  # of the files in a folder


def check_harmless(root: Path, expected: dict[str, Any], config: Config, names: Sequence[str], told: str) -> None:
    """Programs refuse in a line that names the file, or their output and files are those of an undisturbed run."""
    here = replace(config, root=str(root))
    (mains,) = (mains for folder, mains in READERS.items() if names[0].startswith(folder + "/"))
    found, why = told_or_refused(here, mains)
    if why:
        assert any(word in why for word in NAMED), (names, why)
    else:
        check_same_results(root, expected, names)
        assert mains == MAINS[:1] or found.replace(str(root), "").endswith(told), names


@pytest.mark.parametrize(
    ("killed", "folders"), [("", [HISTORIES, SOURCE, GPT, EVALUATION]), (SOURCE, [SOURCE]), (GPT, [GPT])]
)
def test_files_of_another_run(finished, expected, tmp_path, other, tiny, told, killed, folders):
    """In a finished run, and in one that continues from its checkpoint of step 4."""
    for number, names in enumerate(names for folder in folders for names in swapped(other, folder)):
        root = Path(shutil.copytree(finished, tmp_path / str(number)))
        if killed:
            kill_late(root / killed, 4)
        if "best-" in names[0]:  # there is one
            for path in (root / names[0]).parent.glob("best-*"):
                path.unlink()
        for name in names:
            shutil.copy(other / name, root / name)
        check_harmless(root, expected, tiny, names, told)
