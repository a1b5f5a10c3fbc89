"""Files of a run that somebody else wrote, with the right checksums: nothing in them is imported, called or taken as an
option."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import done, run
from installed import needs
from safetensors.torch import save

import icrl
from icrl import extensions
from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.envs import make_env
from icrl.evaluation.trained import OTHER_WORLDS
from icrl.runs.checkpoint import load_newest
from icrl.runs.checkpoint import save as save_checkpoint
from icrl.runs.files import read_json, sha256, write_atomically, write_json

SIDECAR, MANIFEST = "logs/tiny/gpt/last-000000006.json", "histories/tiny/manifest.json"
AGENTS = "logs/tiny/source/last-000000006.json"
MODELS = {"logs/tiny": SIDECAR}  # the file that describes a model, by its folder
if "exported" in extensions.NAMES:
    MODELS["logs/tiny/export"] = "logs/tiny/export/config.json"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Path of a module that leaves a mark when it is imported; there must be none at the end."""
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nf = g = dict\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # by its name, too
    yield str(tmp_path / "trap.py")
    assert not (tmp_path / "mark").exists()


@pytest.fixture(scope="module")
def exported(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the finished run with an exported model, where the extension is installed."""
    root = shutil.copytree(finished, tmp_path_factory.mktemp("exported") / "root")
    if len(MODELS) > 1:
        done("export_model", root, "evaluation.checkpoint=last")
    return root


@pytest.fixture
def root(exported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(exported, tmp_path / "root")


def refusal_of(folder: Path) -> str:
    """Why the model in `folder` cannot be loaded; "" if it acts. Any other error fails the test."""
    try:
        icrl.load(folder).act([4])
    except PipelineError as error:
        return str(error)
    return ""


def record(path: Path, **options: Any) -> None:
    """Change the recorded configuration in a file."""
    content = read_json(path)
    content.get("description", content)["config"] |= options
    write_json(path, content)


@pytest.mark.parametrize(
    "env",
    [
        {"tasks": {"random": {"x": {"call": "{trap}:f"}}, "count": 2}},
        {"tasks": [{}, {"x": {"call": "{trap}:f"}}]},
        {"id": "{trap}:f", "wrappers": ["trap:f"], "expert": "trap:g"},
    ],
)
def test_a_recorded_call_is_not_made(root, trap, env):
    """By no program, and not when a model is loaded."""
    world = json.loads(json.dumps({"name": "gymnasium", "variant": "x", **env}).replace("{trap}", trap))
    for name in (MANIFEST, AGENTS, *MODELS.values()):
        record(root / name, env=world, module=[trap])
    for folder in MODELS:
        why = refusal_of(root / folder)  # options that only name something may be read
        assert not why or str(root) in why
    for program in ("train_agents", "train_gpt", "pipeline", "evaluate", "extract_policy", "finetune"):
        assert run(program, root, "evaluation.checkpoint=last").refusal


def test_a_module_that_a_model_needs_is_asked_for(root, trap):
    record(root / SIDECAR, module=[trap], env={"name": "mine"})
    message = rf"{SIDECAR} .*env\.name=mine.*made with module=.*trap\.py.*import that first"
    with pytest.raises(PipelineError, match=message):
        icrl.load(root / "logs/tiny")


@needs("other_worlds")
@needs("from_gymnasium")
@pytest.mark.parametrize(
    "recorded_world", [{"wrappers": ["trap:f"]}, {"expert": "trap:f"}, {"tasks": {"call": "trap:f"}}]
)
def test_the_world_of_a_model_is_not_made_to_find_new_tasks(tmp_path, trap, recorded_world):
    """The tasks are compared by their options."""
    config = load_config(["env=gymnasium", f"root={tmp_path}"])
    before = config.model_dump() | {"env": config.model_dump()["env"] | recorded_world}
    with closing(make_env(config.env)) as env:
        split = {"all": env.all_tasks().tolist(), "train": [0, 1], "held_out": [], "development": []}
        described = {"env": env.spec.to_json(), "config": before, "tasks": split}
        if "tasks" in recorded_world:
            with pytest.raises(PipelineError, match=r"records an option .*tasks="):
                OTHER_WORLDS[-1](config, env, described)
        else:  # with other wrappers it is another world
            _, found = OTHER_WORLDS[-1](config, env, described)
            assert len(found) == len(env.all_tasks()) - 2 * ("expert" in recorded_world)


@pytest.mark.parametrize(
    ("program", "name", "value"),
    [
        ("train_agents", AGENTS, "3 env=gymnasium env.tasks={{random:{{x:{{call:{trap}:f}}}},count:2}}"),
        ("train_gpt", MANIFEST, "3 module={trap}"),
        ("pipeline", AGENTS, "3; give presets={folder} env=trap"),
        ("evaluate", SIDECAR, "\x1b[2J\nerror: give module=trap"),
    ],
)
def test_a_recorded_value_is_quoted_and_never_an_option(root, trap, program, name, value):
    given = value.format(trap=trap, folder=Path(trap).parent)
    content = read_json(root / name)
    content.get("description", content)["config"]["env"]["size"] = given
    write_json(root / name, content)
    (root / "logs/tiny/source/finished.json").unlink()  # so that stage one continues
    outcome = run(program, root, "evaluation.checkpoint=last")
    assert json.dumps(given) in outcome.refusal and "env.size" in outcome.refusal
    assert "satisfies all rules" not in outcome.err and "\x1b" not in outcome.refusal


# ---- models whose files were changed


def large(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"observation_space": {"type": "Box", "low": 0, "high": 1, "shape": [10**9], "dtype": "float32"}}


@pytest.mark.parametrize(
    ("group", "options"),
    [
        ("model", {"num_layers": 1000, "embed_dim": 2**16, "ff_dim": 2**20}),
        ("model", {"context_len": 10**6, "embed_dim": 2**16}),
        ("model", {"num_layers": 2}),
        ("model", {"obs_encoding": "unknown"}),
        ("policy", {"model": "../../elsewhere"}),
        ("env", {}),
    ],
)
def test_a_model_of_another_size_is_refused_before_it_takes_memory(root, group, options):
    for folder, name in MODELS.items():
        content = read_json(root / name)
        described = content["description"]
        described["config"][group] |= options
        described["env"] = described["env"] if options else large(described["env"])
        write_json(root / name, content)
        with pytest.raises(PipelineError, match=str(root / folder)):
            icrl.load(root / folder)


STATES = {  # of a checkpoint of another model, or of another form
    "missing": lambda weights: {"model": dict([*weights.items()][1:])},
    "another": lambda weights: {"model": weights | {"another": torch.zeros(1)}},
    "shape": lambda weights: {"model": weights | {"policy_head.bias": torch.zeros(3)}},
    "not finite": lambda weights: {"model": weights | {"policy_head.bias": weights["policy_head.bias"] * float("nan")}},
    "a list": lambda _: [],
    "no model": lambda _: {},
    "a list of weights": lambda _: {"model": []},
    "a number": lambda _: {"model": {"x": 1}},
    "a number as a name": lambda _: {"model": {1: torch.zeros(2)}},
}


@pytest.mark.parametrize("change", STATES)
def test_a_state_of_another_model_is_one_error(root, change):
    found, about = load_newest(root / "logs/tiny/gpt", "last", torch.device("cpu")) or ({}, {})
    state = STATES[change](found["model"])
    save_checkpoint(root / "logs/tiny/gpt", "last", 6, state, about["description"], 2)
    with pytest.raises(PipelineError, match=str(root)):
        icrl.load(root / "logs/tiny")
    if change in ("missing", "a list"):
        assert run("evaluate", root, "evaluation.checkpoint=last", "name=new", "run=tiny", "histories=tiny").refusal


@needs("exported")
@pytest.mark.parametrize("change", [*STATES][:4])
def test_exported_weights_of_another_model_are_one_error(root, change):
    weights = load_newest(root / "logs/tiny/gpt", "last", torch.device("cpu"))[0]["model"]
    path, about = root / "logs/tiny/export/model.safetensors", root / "logs/tiny/export/config.json"
    write_atomically(path, save(STATES[change](weights)["model"]))
    write_json(about, read_json(about) | {"weights_sha256": sha256(path)})
    with pytest.raises(PipelineError, match=rf"{root}/logs/tiny/export.*weights"):
        icrl.load(root / "logs/tiny/export")
