"""The user's own worlds, sources, objectives, encoders and histories: the files in `examples/`, and what is refused."""

import importlib.metadata
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from harness import TINY, done, kill_late, refusal
from installed import needs
from small_models import SPEC, batch_of
from toy import curves

import icrl
from icrl import extensions, objectives, sources
from icrl.app.compose import load_config
from icrl.config import modules
from icrl.contracts import ConfigError, PipelineError
from icrl.envs import WORLDS, make_env
from icrl.nn import encoders
from icrl.nn.gpt import GPT
from icrl.runs.files import PROJECT, read_json

EXAMPLES = PROJECT / "examples"
HOUSES = "env.tasks=[{house: 0}, {house: 1}, {house: 2}, {house: 3}, {house: 5}, {house: 6}, {house: 7}, {house: 8}]"
STREET = ("env=gymnasium", "env.max_episode_steps=4", "env.width=0", HOUSES)
ANY = tuple(option for option in TINY if not option.startswith(("env.", "source.hidden")))  # of any world and source
TUNED = ("finetune.trial_steps=8", "finetune.num_iterations=1", "finetune.num_streams=2", "finetune.num_mini_batches=2")


OF_CLASS = needs("from_gymnasium")


def street(folder: Path) -> tuple[str, ...]:
    own = (f"env.id={folder}/my_world.py:Street", "env.num_workers=2", "source=q_learning", "source.unroll_length=5")
    return (*ANY, *STREET, *own)


def rule(folder: Path) -> tuple[str, ...]:
    modules = f"module=[{folder}/my_rule.py,{folder}/my_source.py]"
    return (*ANY, modules, "env=street", "env.max_episode_steps=4", "env.length=9", "source=expected_sarsa")


def model(folder: Path) -> tuple[str, ...]:
    own = ("objective=confidence_penalty", "model.obs_encoding=waves")
    return (*TINY, f"module={folder}/my_model.py", *own)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of the user's own files. Their modules and classes are forgotten before and after."""

    def forget() -> None:
        for name in ("my_world", "my_cartpole", "my_rule", "my_source", "my_model"):
            sys.modules.pop(name, None)
        for registered in (WORLDS, sources._CLASSES, objectives._CLASSES, encoders.OWN):
            for name in [name for name, made in registered.items() if made.__module__.startswith("my_")]:
                del registered[name]

    folder = tmp_path / "mine"
    folder.mkdir()
    for path in EXAMPLES.glob("my_*.py"):
        shutil.copy(path, folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    forget()
    yield folder
    forget()


@pytest.mark.parametrize(
    "options", [pytest.param(street, marks=(pytest.mark.long, OF_CLASS)), rule], ids=["class", "rule and source"]
)
def test_files_of_ones_own_go_through_all_stages_with_worker_processes(tmp_path, mine, options):
    root = tmp_path / "root"
    for stage in ("train_agents", "train_gpt", "evaluate", "finetune"):
        done(stage, root, "evals.async_eval=true", *TUNED, preset=options(mine))
    curves = read_json(root / "logs/tiny/evaluation/results.json")["curves"]
    assert all(math.isfinite(value) for curve in curves.values() for value in curve["returns"]["mean"])
    assert len(read_json(root / "logs/tiny/evaluation/results.json")["held_out_tasks"]) == 3
    assert ("optimum" in curves) == (options is rule)


@OF_CLASS
@needs("experts")
def test_a_cart_pole_of_ones_own_has_pushes_and_buttons_by_its_tasks(mine, monkeypatch):
    """With the command of its first lines."""
    monkeypatch.chdir(mine.parent)
    text = (mine / "my_cartpole.py").read_text().replace("examples/", f"{mine}/")
    command = re.search(r"python -m src.pipeline (.*?)\n\"", text, re.DOTALL)[1].replace("\\\n", " ")
    with closing(make_env(load_config(shlex.split(command)).env)) as env:
        tasks = env.all_tasks()
        state, step = env.reset(tasks, torch.arange(30))
        _, after = env.step(state, torch.ones(30, dtype=torch.long))
        moved = after.obs[:, 1] - step.obs[:, 1]  # speed of the cart
    assert len(tasks) == 30 and {*(moved > 0).tolist()} == {True, False}
    assert moved.abs().min() > 0.08 and 1.5 < moved.abs().max() / moved.abs().min() < 3.1  # pushes of 5 to 15 newtons


@OF_CLASS
def test_the_rule_is_the_class(mine):
    """Both streets, stepped by the same actions."""
    one, two = (make_env(load_config(options(mine)).env) for options in (street, rule))
    tasks, seeds = torch.arange(8)[:, None], torch.arange(8)
    (state, first), (other, same) = one.reset(tasks, seeds), two.reset(two.all_tasks(), seeds)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        for name in ("obs", "reward", "terminated", "truncated", "final_obs", "timestep"):
            assert getattr(first, name).tolist() == getattr(same, name).tolist(), name
        action = torch.randint(2, (8,), generator=generator)
        (state, first), (other, same) = one.step(state, action), two.step(other, action)


def test_an_objective_and_an_encoder_of_ones_own_are_trained_evaluated_and_loaded(root, mine):
    """A strong penalty on certainty leaves the policy less certain than none."""
    entropy = {}
    for strength in (0, 10):
        more = (
            *(f"objective.strength={strength}", "optimizer.learning_rate=0.03", "trainer.num_iterations=20"),
            *(f"name=with{strength}", "histories=tiny", f"run=with{strength}", "trainer.evaluate=false"),
            *("summaries.summary_interval=10", "checkpoints.checkpoint_interval=0"),
        )
        done("train_gpt", root, *more, "evaluation.checkpoint=last", preset=model(mine))
        found = curves(root / f"logs/with{strength}/gpt")
        assert {"train/imitation", "train/penalty", "train/nll"} <= found.keys()
        entropy[strength] = float(found["train/entropy"][-1][1])
    assert entropy[10] > entropy[0] + 0.1
    done("evaluate", root, *more, "evaluation.checkpoint=last", preset=model(mine))
    policy = icrl.load(root / "logs/with10")
    assert type(policy.policy.model.obs.encoder).__name__ == "Waves" and policy.act([4]).shape == (1,)
    encoders.OWN.clear()
    with pytest.raises(PipelineError, match=r"json .*=waves: must be one of .*my_model\.py.*: import that first"):
        icrl.load(root / "logs/with10")


def test_the_terms_of_the_objective_are_those_of_its_equation(mine):
    """Against plain distillation, and an entropy that is summed by hand."""
    config = load_config(model(mine))
    net, batch = GPT(config.model, SPEC).eval(), batch_of()
    own = objectives.objective_class("confidence_penalty")(config.objective, SPEC)
    terms, metrics = own(net, batch)
    plain, _ = objectives.objective_class("ad")(config.objective, SPEC)(net, batch)
    p = own.logits(net, batch).softmax(-1).flatten(0, 1).tolist()
    by_hand = sum(-sum(q * math.log(q) for q in row) for row in p) / len(p)
    assert terms["imitation"].item() == plain["imitation"].item()
    assert metrics["entropy"].item() == pytest.approx(by_hand, rel=1e-5) == -terms["penalty"].item()
    assert own.weights == {"imitation": 1.0, "penalty": 0.01}


def test_an_installed_package_registers_what_it_declares(mine, monkeypatch):
    """Without `module=`; each is imported once."""
    found = [EntryPoint("mine", "my_model", "icrl.plugins"), EntryPoint("other", "my_source", "icrl.plugins")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found if group == "icrl.plugins" else [])
    monkeypatch.syspath_prepend(mine)
    modules.load_plugins.cache_clear()
    config = load_config(["objective=confidence_penalty", "model.obs_encoding=waves", "source=expected_sarsa"])
    assert config.objective.strength == 0.01 and config.module == []
    monkeypatch.undo()
    modules.load_plugins.cache_clear()


@pytest.mark.parametrize(("options", "name"), [pytest.param(street, "my_world", marks=OF_CLASS), (rule, "my_source")])
def test_a_changed_file_is_refused_wherever_its_run_continues(tmp_path, mine, options, name):
    root, path = tmp_path / "root", mine / f"{name}.py"
    for stage in ("train_agents", "train_gpt"):
        done(stage, root, preset=options(mine))
    before = path.read_text()
    path.write_text(before + "\n# changed\n")
    for stage in ("train_agents", "train_gpt", "evaluate"):
        assert f"was made with another {name}.py (sha256 " in refusal(stage, root, preset=options(mine))
    kill_late(root / "logs/tiny/source", 4)
    assert f"another {name}.py" in refusal("train_agents", root, preset=options(mine))
    path.write_text(before)
    elsewhere = mine.rename(tmp_path / "elsewhere")  # what counts is the text
    if options is rule:
        for module in ("my_rule", "my_source"):
            del sys.modules[module]
        done("train_agents", root, preset=rule(elsewhere))


def test_a_changed_file_is_imported_again(mine, monkeypatch):
    """Even if its length and time are those of another."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = mine / "my_rule.py"
    os.utime(path, (10**9, 10**9))
    assert load_config(rule(mine)).env.name == "street"
    path.write_text(path.read_text().replace("length: int", "houses: int").replace("config.length", "config.houses"))
    os.utime(path, (10**9, 10**9))
    with pytest.raises(ConfigError, match=r"env\.length: there is no such option"):
        load_config(rule(mine))


MODEL, RULE = "module={mine}/my_model.py", "module={mine}/my_rule.py"
WRONG = {  # message: options
    "module=nothing.py: there is no such file, relative to the working directory": ["module=nothing.py"],
    "module=no_such.module: ModuleNotFoundError: No module named 'no_such'": ["module=no_such.module"],
    "module={mine}/raises.py: ZeroDivisionError: division by zero": ["module={mine}/raises.py"],
    "module={mine}/a-b.py: a-b.py must have a name that a module can have": ["module={mine}/a-b.py"],
    "is another module named json; rename the file": ["module={mine}/json.py"],
    "@world('dark_room') of twice.Twice: there is another world of this name": ["module={mine}/twice.py"],
    "@encoder('cell') of thrice.Thrice: there is another encoder of this name": ["module={mine}/thrice.py"],
    "model.obs_encoding=wave: must be one of cell, coordinates, smooth, framed, waves": [
        MODEL,
        "model.obs_encoding=wave",
    ],
    "env=street: must be one of": ["env=street"],
    "env.length=2: must be int >= 3 and <= 1000": [RULE, "env=street", "env.length=2"],
}
CLASS = "env.id={mine}/my_world.py:Streat"
if "from_gymnasium" in extensions.NAMES:
    WRONG[f"{CLASS}: {{mine}}/my_world.py has no class Streat"] = ["env=gymnasium", CLASS, HOUSES]
    WRONG["env.id=street.py: names no class of the file"] = ["env=gymnasium", "env.id=street.py", HOUSES]
    WRONG["env.id=nothing.py:Street: there is no such file"] = ["env=gymnasium", "env.id=nothing.py:Street"]


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said_in_one_line_before_any_work(tmp_path, mine, message):
    world = "from icrl.envs.core import EnvConfig, world\n@world('dark_room', EnvConfig)\nclass Twice: ...\n"
    files = {"raises": "1 / 0\n", "a-b": "", "json": "", "twice": world}
    files["thrice"] = "import icrl\n@icrl.encoder('cell')\nclass Thrice: ...\n"
    for name, text in files.items():
        (mine / f"{name}.py").write_text(text)
    options = [option.format(mine=mine) if option != HOUSES else option for option in WRONG[message]]
    assert message.format(mine=mine) in refusal("train_agents", tmp_path / "root", preset=options)
