"""Files that are damaged, of another shape, of another run or program, or renamed: refused in one line, healed, or
without any effect on what a run comes to."""

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from harness import TINY, results_of
from matplotlib.figure import Figure

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.contracts import PipelineError
from icrl.data.history_store import HistoryWriter
from icrl.plots import figures, source_agents
from icrl.programs import evaluate, extract_policy, train_agents, train_gpt, train_ilql
from icrl.runs import record as run_record
from icrl.runs.files import read_json, sha256, write_json

SOURCE, GPT, EVALUATION, HISTORIES = "logs/tiny/source", "logs/tiny/gpt", "logs/tiny/evaluation", "histories/tiny"
MAINS = (train_agents.main, train_gpt.main, evaluate.main)


@pytest.fixture(scope="module", autouse=True)
def cheap() -> Iterator[None]:
    """Without git and pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_record, "git_state", lambda _: {"revision": "0", "dirty": False, "diff": ""})
        for module, name in (
            *((source_agents, "success_figure"), (figures, "success_figure")),
            *((figures, "adaptation_figure"),),
        ):
            patch.setattr(module, name, lambda *_, **__: Figure((0.5, 0.5)))
        yield


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config([*TINY, "root=here"])


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, finished: Path, config: Config) -> dict[str, Path]:
    """Roots of finished runs whose files are put in the place of others: of another seed, and of longer training; of
    programs, folders that are in the place of gpt/."""
    seed, longer = (tmp_path_factory.mktemp(name) for name in ("seed", "longer"))
    run_all(replace(config, seed=1, root=str(seed)), MAINS)
    shutil.copytree(finished / "histories", longer / "histories")
    run_all(replace(config, root=str(longer), trainer=replace(config.trainer, num_iterations=8)), MAINS[1:2])
    programs = tmp_path_factory.mktemp("programs")
    shutil.copytree(finished / "histories", programs / "histories")
    run_all(replace(config, root=str(programs)), (train_ilql.main, extract_policy.main))
    found = {"seed": seed, "longer": longer}
    for program in ("ilql", "awr"):
        found[program] = tmp_path_factory.mktemp(program)
        shutil.copytree(programs / "logs/tiny" / program, found[program] / GPT)
    return found


def run_all(config: Config, mains: Sequence[Callable[[Config], Any]]) -> str:
    """What the programs print, one after the other."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        for main in mains:
            main(config)
    return out.getvalue()


def refusal(config: Config, mains: Sequence[Callable[[Config], Any]] = MAINS) -> str:
    """Why one of the programs refuses; empty where none does."""
    return told_or_refused(config, mains)[1]


def told_or_refused(config: Config, mains: Sequence[Callable[[Config], Any]] = MAINS) -> tuple[str, str]:
    """What the programs print, and why one of them refuses, in one line; what is no `PipelineError` fails the test."""
    told, refused = "", ""
    try:
        told = run_all(config, mains)
    except PipelineError as error:
        refused = str(error)
    assert "\n" not in refused.strip() and (not refused or config.root in refused)
    return told, refused


def interrupted(root: Path, folder: str) -> None:
    """As a run leaves it that was killed after its checkpoint of step 4."""
    for path in (root / folder / "finished.json", *(root / folder).glob("last-000000006.*")):
        path.unlink()


def key_of(name: str) -> str:
    """How `results_of` calls a file."""
    path = Path(name)
    kind, dash, _ = path.name.partition("-")
    return str(path.with_name(kind + path.suffix)) if dash else name


def check_same_results(root: Path, finished: Path, damaged: Sequence[str]) -> None:
    """But for the files that were damaged, which nobody read, or they would have been healed."""
    left_out = {key_of(name) for name in damaged} | {f"{name}.damaged" for name in damaged}  # a run.json is put aside
    found, expected = results_of(root), results_of(finished)
    differ = {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
    assert {name for name in differ if not name.endswith(".png")} <= left_out


# ---- of another shape


def shapes(content: Any, depth: int) -> Iterator[Any]:
    """Mappings that lack a key, or have a value of another kind, here or below."""
    for key, value in content.items():
        yield {name: part for name, part in content.items() if name != key}
        others: Iterable[Any] = [other for other in ([], "x", None) if type(other) is not type(value)]
        if isinstance(value, dict) and depth:
            others = itertools.chain(others, shapes(value, depth - 1))
        if isinstance(value, list) and value and isinstance(value[0], dict) and depth:
            others = itertools.chain(others, ([below, *value[1:]] for below in shapes(value[0], depth - 1)))
        yield from (content | {key: other} for other in others)


@pytest.mark.parametrize(
    ("name", "main"),
    [
        (f"{HISTORIES}/manifest.json", 1),
        (f"{SOURCE}/finished.json", 0),
        (f"{GPT}/finished.json", 1),
        (f"{GPT}/last-000000006.json", 1),
        (f"{GPT}/best-*.json", 2),
        (f"{EVALUATION}/results.json", 2),
    ],
)
def test_json_of_another_shape(finished: Path, root: Path, config: Config, name: str, main: int) -> None:
    """With its checksum right. What is not refused says what the right file does; results may be of fewer players."""
    (path,) = root.glob(name)
    config, content = replace(config, root=str(root)), read_json(path)
    told = run_all(config, MAINS[main : main + 1])
    refusals = 0
    for shape in shapes(content, 1):
        write_json(path, shape)
        found, refused = told_or_refused(config, MAINS[main : main + 1])
        assert refused or found == told or (name.endswith("results.json") and found), shape
        refusals += bool(refused)
    assert refusals > 10


# ---- damaged


def flipped(content: bytes, at: float) -> bytes:
    place = int(at * (len(content) - 1))
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "one byte": lambda content: content[:1],
    "cut": lambda content: content[: len(content) // 3],
    "almost whole": lambda content: content[:-9],
    "a bit at the start": lambda content: flipped(content, 0.02),
    "a bit amid": lambda content: flipped(content, 0.5),
    "a bit near the end": lambda content: flipped(content, 0.97),
    "zeros": lambda content: bytes(len(content)),
    "zeros amid": lambda content: content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
    "deep": lambda _: b"[" * 100_000,
}
FILES = (
    *(f"{HISTORIES}/{name}" for name in ("manifest.json", "reward.npy")),
    *(f"{SOURCE}/{name}" for name in ("last-000000006.pt", "last-000000006.json", "finished.json", "evaluations.json")),
    *(f"{GPT}/{name}" for name in ("last-000000006.pt", "last-000000006.json", "finished.json", "evaluations.json")),
    *(f"{GPT}/{name}" for name in ("best-*.pt", "best-*.json", "run.json")),
    *(f"{EVALUATION}/{name}" for name in ("results.json", "episodes.npz")),
)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_a_finished_run(finished: Path, root: Path, config: Config, name: str) -> None:
    config = replace(config, root=str(root))
    (path,) = root.glob(name)
    whole, told = path.read_bytes(), run_all(config, MAINS)
    for damage, do in DAMAGES.items():
        path.write_bytes(do(whole))
        found, refused = told_or_refused(config)
        assert refused or found == told, damage
        path.write_bytes(whole)
    check_same_results(root, finished, [])


@pytest.mark.parametrize("size", range(0, 4000, 400))
def test_a_state_that_was_cut_with_its_checksum_right(root: Path, config: Config, size: int) -> None:
    """PyTorch's reader meets what it may."""
    path = root / GPT / "last-000000006.pt"
    path.write_bytes(path.read_bytes()[:size])
    write_json(path.with_suffix(".json"), read_json(path.with_suffix(".json")) | {"state_sha256": sha256(path)})
    for main in (train_gpt.main, evaluate.main):
        last = replace(config, root=str(root), evaluation=replace(config.evaluation, checkpoint="last"))
        assert "and the newest whole checkpoint beside it is of step 4" in refusal(last, [main])


def test_a_step_of_interrupted_histories(tmp_path: Path, finished: Path, config: Config) -> None:
    """Of all that was committed none is learned from that is not what was recorded."""
    root = tmp_path / "root"
    config = replace(config, root=str(root))

    def die(_: HistoryWriter) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(HistoryWriter, "finish", die)
        run_all(config, MAINS[:1])
    path = root / HISTORIES / "reward.npy"
    whole = path.read_bytes()
    for damaged in (flipped(whole, 0.99), whole[:-25] + b"\1" * 25):
        path.write_bytes(damaged)
        assert f"{path} is damaged in the block of steps " in refusal(config, MAINS[:1])
    path.write_bytes(whole)
    assert not refusal(config, MAINS[:1])
    assert read_json(root / HISTORIES / "manifest.json")["complete"]
    assert path.read_bytes() == (finished / HISTORIES / "reward.npy").read_bytes()


# ---- of others

ALONE = {"finished.json", "evaluations.json", "run.json", "results.json", "episodes.npz", "manifest.json", "reward.npy"}
NAMED = ("here belongs", "was made with", "is damaged", "ended at", "was written as", "of another model")


def swapped(root: Path, folder: str) -> list[list[str]]:
    """Files in `folder` of a root that another could have in its place, checkpoints as pairs."""
    paths = [path for path in sorted((root / folder).rglob("*")) if path.is_file()]
    names = [path.relative_to(root).as_posix() for path in paths if path.name in ALONE]
    states = [path for path in paths if path.suffix == ".pt" and path.name.startswith(("last-", "best-"))]
    pairs = [[path.with_suffix(suffix).relative_to(root).as_posix() for suffix in (".pt", ".json")] for path in states]
    return [*([name] for name in names), *pairs]


def check_harmless(root: Path, finished: Path, config: Config, names: Sequence[str], told: str) -> None:
    """Refused in a line that names the file, or no program tells or leaves anything else than where nothing was done to
    the files of these `names`."""
    here = replace(config, root=str(root))
    if why := refusal(here):
        assert str(root) in why and any(word in why for word in NAMED), (names, why)
    else:
        check_same_results(root, finished, names)
        assert run_all(here, [evaluate.main]).replace(str(root), "") == told, names


@pytest.fixture
def told(finished: Path, config: Config) -> str:
    """What the evaluation says of a run that nobody disturbed."""
    return run_all(replace(config, root=str(finished)), [evaluate.main]).replace(str(finished), "")


@pytest.mark.parametrize(
    ("other", "killed", "folders"),
    [
        ("seed", "", [HISTORIES, SOURCE, GPT, EVALUATION]),
        ("seed", SOURCE, [HISTORIES, SOURCE]),
        ("seed", GPT, [GPT]),
        *itertools.product(("longer", "ilql", "awr"), ("", GPT), [[GPT]]),
    ],
)
def test_files_of_another_run(
    finished: Path,
    tmp_path: Path,
    others: dict[str, Path],
    config: Config,
    told: str,
    other: str,
    killed: str,
    folders: list[str],
) -> None:
    """Put into a finished run, and into one that goes on."""
    for number, names in enumerate(names for folder in folders for names in swapped(others[other], folder)):
        root = Path(shutil.copytree(finished, tmp_path / str(number)))
        if killed:
            interrupted(root, killed)
        if "best-" in names[0]:  # there is one
            for path in (root / names[0]).parent.glob("best-*"):
                path.unlink()
        for name in names:
            shutil.copy(others[other] / name, root / name)
        check_harmless(root, finished, config, names, told)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("kind", "step", "name"),
    [
        *(("last", 4, "last-000000006"), ("last", 4, "last-000000009"), ("last", 4, "best-000000006")),
        *(
            ("best", None, "last-000000006"),
            ("best", None, "best-000000009"),
            ("last", 6, "last-x"),
            ("last", 6, "last-5"),
        ),
    ],
)
def test_renamed_checkpoints(
    finished: Path, root: Path, config: Config, told: str, killed: bool, kind: str, step: int | None, name: str
) -> None:
    folder = root / GPT
    if killed:
        (folder / "finished.json").unlink()
    (state,) = folder.glob(f"{kind}-*{step or ''}.pt")
    if name.startswith("best"):
        kept = state.read_bytes(), state.with_suffix(".json").read_bytes()
        for path in folder.glob("best-*"):
            path.unlink()
        state.write_bytes(kept[0])
        state.with_suffix(".json").write_bytes(kept[1])
    for suffix in (".pt", ".json"):
        state.with_suffix(suffix).replace(folder / f"{name}{suffix}")
    check_harmless(root, finished, config, [f"{GPT}/{name}.pt", f"{GPT}/{name}.json"], told)


def test_a_finish_before_the_end_is_none(root: Path, config: Config) -> None:
    """Of the very same run: histories and checkpoints of an earlier moment beside it."""
    for path in (root / GPT).glob("last-000000006.*"):
        path.unlink()
    for main in (train_gpt.main, evaluate.main):
        last = replace(config, root=str(root), evaluation=replace(config.evaluation, checkpoint="last"))
        assert "ended at step 6, and the newest whole checkpoint beside it is of step 4" in refusal(last, [main])
    (root / GPT / "finished.json").unlink()
    assert not refusal(replace(config, root=str(root)))
