"""Public front of the library, its examples and the scripts in `examples/`."""

import doctest
import math
import multiprocessing
import re
import runpy
import subprocess
import sys
import tomllib

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from harness import TINY
from installed import needs
from packaging.requirements import Requirement

import icrl
from icrl.contracts import ConfigError
from icrl.runs.files import PROJECT

pytestmark = pytest.mark.quick
WRONG = (  # second steps of one stream
    (
        ([4],),
        r"^reward=None, terminated=None, truncated=None after an action: call act\(obs, reward, terminated, trunc",
    ),
    (([4], [0.5], [False], [False]), r"knows only the rewards \[0\.0, 1\.0\]"),
    (([4], [np.nan], [False], [False]), "knows only the rewards"),
    (([4], [0.0, 0.0], [False], [False]), r"^reward has the shape \(2,\): must be \(1,\), one row for each stream"),
    (([4], [0.0], [0.5], [False]), "^terminated has 0.5: must be true or false"),
    (([4], [0.0], [False], False), r"^truncated has the shape \(\)"),
    (([99], [0.0], [False], [False]), "^obs is 99"),
    (([0.7], [0.0], [False], [False]), "^obs has 0.7: must be whole numbers"),
    (([np.nan], [0.0], [False], [False]), "^obs has nan: must be whole numbers"),
    (([[4]], [0.0], [False], [False]), r"^obs has the shape \(1, 1\): must be \(1,\)"),
    ((["4"], [0.0], [False], [False]), r"^obs=\['4'\]: must be numbers"),
    (([[4], [4, 4]], [0.0], [False], [False]), "^obs=.*inhomogeneous"),
)
ROOM = {"goal": (0, 1), "size": 3, "max_episode_steps": 4}  # the world of the fixture `finished`


def test_examples_of_docstrings_run():
    found = doctest.testmod(sys.modules[icrl.load.__module__], extraglobs={"icrl": icrl})
    assert found.attempted >= 3 and not found.failed


@needs("as_gymnasium")
def test_a_loaded_model_acts_in_single_and_batched_environments_alike(finished):
    assert icrl.open_histories(finished / "histories/tiny").columns["action"].ndim == 2
    policy = icrl.load(finished / "logs/tiny", seed=3)
    assert repr(policy).startswith("<InContextPolicy of dark_room, gpt: observations Discrete(9), actions Discrete(5);")
    single = icrl.rollout(policy, gymnasium.make("icrl:icrl/DarkRoom-v0", **ROOM), num_episodes=4)
    batch = gymnasium.make_vec("icrl:icrl/DarkRoom-v0", num_envs=3, **ROOM)
    returns = icrl.rollout(policy, batch, num_episodes=4)
    assert returns.shape == (3, 4) and set(returns.ravel()) <= {0.0, 1.0}
    np.testing.assert_array_equal(returns[:1], single)  # more streams change none


@needs("as_gymnasium")
def test_it_plays_as_evaluation_does(finished):
    """Greedy actions in a room that is stepped by hand equal those of the tensor world."""
    policy = icrl.load(finished / "logs/tiny", temperature=0)
    env = icrl.make_env("dark_room", "env.size=3", "env.max_episode_steps=4")
    played = icrl.evaluate(policy, env, torch.tensor([[1]]), num_episodes=3, num_streams=1)
    by_hand = icrl.rollout(policy, gymnasium.make("icrl:icrl/DarkRoom-v0", **ROOM), num_episodes=3)
    np.testing.assert_array_equal(played.returns[0], by_hand)


def test_wrong_steps_are_refused(finished):
    policy = icrl.load(finished / "logs/tiny")
    with pytest.raises(ValueError, match=r"reward in the first step after `reset`: .* call act\(obs\)"):
        policy.act([0], reward=[0.0])
    policy.act([4])
    other = icrl.load(finished / "logs/tiny")
    other.act([4])
    for step, said in WRONG:
        with pytest.raises(ValueError, match=said):
            other.act(*step)
    for step in [([4], [1.0], [ended], [0]) for ended in (False, False, True)]:
        assert other.act(*step).tolist() == policy.act(*step).tolist()
    next_step = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert next_step.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    with pytest.raises(ConfigError, match="SAME_STEP"):
        icrl.rollout(policy, next_step, num_episodes=1)
    with pytest.raises(ConfigError, match=r"action_space=Discrete\(4\): must be Discrete\(5\)"):
        icrl.rollout(policy, gymnasium.make("FrozenLake-v1"), num_episodes=1)
    env = icrl.make_env(policy.config.env)
    for tasks, said in (([[0.5]], "tasks has 0.5: must be whole numbers"), ([1], r"shape \(1,\): must be \(1, 1\)")):
        with pytest.raises(ValueError, match=said):
            icrl.evaluate(policy, env, tasks)
    one, none = {"tasks": [[1]]}, torch.zeros(0, 1, dtype=torch.long)
    strange = [{"tasks": tasks} for tasks in ([[25]], none, [])]
    for wrong in (*strange, one | {"num_episodes": 0}, one | {"num_streams": -1}):
        *_, name = wrong
        with pytest.raises(ConfigError, match=f"{name}=.*must"):
            icrl.evaluate(policy, env, **wrong)
    with pytest.raises(ConfigError, match=r"^env.spec.observation_space=Discrete\(4\): must be Discrete\(9\)"):
        icrl.evaluate(policy, icrl.make_env("dark_room", "env.size=2", "env.max_episode_steps=4"), [[1]])


def test_folders_that_do_not_exist_are_named(finished, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for call, said in (
        (lambda: icrl.load("logs/gone"), f"^{tmp_path}/logs/gone: there is no such folder$"),
        (lambda: icrl.open_histories("gone"), f"^no histories in {tmp_path}/gone, which does not exist: "),
        (lambda: icrl.load(finished / "logs/tiny", model="gone"), "policy.model=gone .* must be one of gpt, finetuned"),
        (lambda: icrl.load(finished / "logs/tiny", model="finetuned"), "no finished training in .*: .*: .*gpt, source"),
        (lambda: icrl.load(finished / "logs/tiny", model=3), "model=3: must be None, or the name"),
        (lambda: icrl.load(finished / "logs/tiny", temperature=-1), "temperature=-1: must be None, 0, or "),
        (lambda: icrl.load(finished / "logs/tiny", temperature=math.nan), "temperature=nan: must be"),
        (lambda: icrl.load(finished / "logs/tiny", checkpoint="first"), "checkpoint=first: must be last, best, or"),
        (
            lambda: icrl.load(finished / "logs/tiny", temperature="warm"),
            "temperature=warm: must be None, 0, or at least",
        ),
        (lambda: icrl.load(finished / "logs/tiny", checkpoint=True), "checkpoint=True: must be last, best, or"),
        (lambda: icrl.load(finished / "logs/tiny", seed=1.5), "seed=1.5: must be an int"),
        (lambda: icrl.load(finished / "logs/tiny", seed=2**70), f"seed={2**70}: must be an int of 64 bits"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()


def test_programs_are_functions(root):
    """Finished stages are not repeated; what is trained is loaded."""
    options, trials = (*TINY, f"root={root}"), ("finetune.trial_steps=8", "finetune.num_iterations=1")
    assert icrl.train(*options, stage="train_agents") == root / "histories/tiny"
    assert icrl.train(*options, stage="train_gpt") == icrl.train(*options, stage="evaluate") == root / "logs/tiny"
    assert icrl.finetune(*options, *trials) == root / "logs/tiny"
    tuned = icrl.load(root / "logs/tiny", model="finetuned", seed=3)
    (root / "logs/tiny/gpt").rename(root / "logs/tiny/other")  # as after trials with finetune.start=none
    assert icrl.load(root / "logs/tiny").about == tuned.about
    env = icrl.make_env(tuned.config.env)
    assert icrl.evaluate(tuned, env, [[1]], num_episodes=3, num_streams=1).returns.shape == (1, 1, 3)
    with pytest.raises(ConfigError, match=r"stage=train: must be one of all, train_agents, "):
        icrl.train(*options, stage="train")


def test_a_script_without_a_guard_is_told_to_have_one(monkeypatch):
    """As a process finds out that was started by the script, and imports it again."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match='put the call below `if __name__ == "__main__":`'):
        icrl.train("experiment=tiny")


ACTING = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import gymnasium, icrl
from icrl.__main__ import run
policy = icrl.load(sys.argv[1])
print(icrl.rollout(policy, gymnasium.make("icrl:icrl/DarkRoom-v0", goal=(0, 1), size=3, max_episode_steps=4), 3))
print(icrl.evaluate(policy, icrl.make_env(policy.config.env), [[1]], num_episodes=3, num_streams=1).returns)
try:
    icrl.train("experiment=tiny")
except Exception as error:
    print(error)
run("search_params")
"""


@needs("as_gymnasium")
def test_acting_needs_five_packages(finished):
    """All packages of extras are absent, and a training says which extra it needs."""
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {"hydra-core": "hydra", "imageio-ffmpeg": "imageio_ffmpeg", "pillow": "PIL", "jupyter": "IPython"}
    listed = {re.split(r"[\[=<>]", one)[0] for name in ("train", "search", "notebooks") for one in extras[name]}
    absent = {modules.get(name, name) for name in listed} | {"omegaconf", "yaml", "tqdm"}
    command = [sys.executable, "-c", ACTING.format(absent=absent), finished / "logs/tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *played, told = done.stdout.splitlines()
    assert done.returncode == 2 and played[0].startswith("[[") and len(played) == 2, done.stderr
    assert re.fullmatch(r'icrl\.train needs the package \w+: pip install "in-context-rl\[train\]", .*', told)
    assert re.fullmatch(r'error: icrl search_params needs .*"in-context-rl\[search\]".*\n', done.stderr)


def test_requirements_are_those_of_the_package_and_its_extras():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = [one for name in ("train", "search", "notebooks") for one in project["optional-dependencies"][name]]
    named = {*project["dependencies"], *extras} - {"in-context-rl[train]"}
    lines = {line for line in (PROJECT / "requirements.txt").read_text().splitlines() if line[0] != "#"}
    (allowed,), (pinned,) = named - lines, lines - named
    assert pinned.startswith("torch==") and Requirement(allowed).specifier.contains(pinned.removeprefix("torch=="))
    assert icrl.__version__ in (PROJECT / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    "example",
    [
        "read_histories.py histories",
        *(pytest.param(f"{name}.py logs", marks=needs("as_gymnasium")) for name in ("act", "film_learning")),
    ],
)
def test_scripts_of_examples_run(example, finished, tmp_path, monkeypatch, capsys):
    script, folder = example.split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, str(finished / folder / "tiny"), str(tmp_path / "film.gif")])
    runpy.run_path(str(PROJECT / "examples" / script), run_name="__main__")
    assert "[" in capsys.readouterr().out
