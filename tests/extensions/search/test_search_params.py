"""A search continues after any interruption, and its score tells learning from not learning."""

import json
import re
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import matplotlib as mpl
import optuna
import pytest
import torch
from harness import flip
from installed import needs
from matplotlib import pyplot as plt
from refusals import check_refusal, refusals

from icrl import extensions
from icrl.app.compose import compose_config, load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.envs.tasks import split_tasks
from icrl.extensions.search.options import SearchedConfig
from icrl.extensions.search.pictures import PLOTS, write_search_plots
from icrl.extensions.search.programs import search_params
from icrl.extensions.search.programs.search_params import main, score, searched_task
from icrl.programs import train_agents, train_gpt
from icrl.runs.divergence import DivergedError
from icrl.runs.files import read_json

OPTIONS = ("experiment=tiny", "device=cpu", "num_threads=1")
BUDGET = ("search.num_trials=3", "search.num_learners=2", "search.num_env_steps=2000")
QUICK = ("search.num_learners=1", "search.num_env_steps=200")


def tiny(root: Path, *options: str) -> SearchedConfig:
    return compose_config(SearchedConfig, [*OPTIONS, *BUDGET, f"root={root}", *options])


def searched(root: Path, num_trials: int, *options: str) -> dict[str, Any]:
    """Search until there are `num_trials`; returns the results."""
    return read_json(main(tiny(root, *QUICK, f"search.num_trials={num_trials}", *options)) / "results.json")


def test_an_interrupted_search_tries_the_same_as_an_undisturbed_one(tmp_path, monkeypatch, capsys):
    """Twelve trials are more than the random ones that the sampler starts with."""
    scored: list[Config] = []
    monkeypatch.setattr(search_params, "score", lambda *arguments: scored.append(arguments[0]) or score(*arguments))
    closed: list[int] = []
    monkeypatch.setattr(DarkRoom, "close", lambda env: closed.append(id(env)))
    results = searched(tmp_path / "undisturbed", 12)
    values = [trial["value"] for trial in results["trials"]]
    assert len(scored) == len(values) == 12 and len(set(values)) > 1 and len(closed) == 12
    best = results["trials"][values.index(max(values))]
    assert best == {"value": results["value"], **results["best"]} and results["value"] == max(values)
    printed = re.findall(r"source\.\S+", capsys.readouterr().out)
    source = load_config([*OPTIONS, *printed]).source
    assert {option.partition("=")[0] for option in printed} == results["best"].keys()
    for name, value in results["best"].items():
        assert getattr(source, name.removeprefix("source.")) == pytest.approx(value, rel=1e-3)
    first = searched(tmp_path, 11)
    with monkeypatch.context() as patch, pytest.raises(Stopped, match="the same command continues"):  # amid a trial
        patch.setattr(search_params, "score", lambda *_: signal.raise_signal(signal.SIGTERM))
        searched(tmp_path, 12)
    second = searched(tmp_path, 12)
    assert second["trials"] == results["trials"] and second["trials"][:11] == first["trials"]
    assert second["times"][:11] == first["times"] and len(second["times"]) == 12
    assert searched(tmp_path, 2) == second, "fewer trials than there are must not take any away"
    assert len(scored) == 24
    for option in ("search.num_learners=2", "seed=1", "env.terminate_on_goal=false"):
        with pytest.raises(ConfigError, match=re.escape(option.split("=")[0])):
            searched(tmp_path, 13, option)
    pictures = [*(tmp_path / "logs/tiny/search").glob("*.png")]
    assert {path.stem for path in pictures} == PLOTS.keys()
    assert {plt.imread(path).shape[:2] for path in pictures} == {(175, 300)}  # a quarter, see `blank`


def test_searches_with_other_seeds_try_other_options(tmp_path, monkeypatch):
    monkeypatch.setattr(search_params, "score", lambda *_: 0.5)
    monkeypatch.setattr(search_params, "write_search_plots", lambda *_: None)
    tried = [searched(tmp_path / str(seed), 3, f"seed={seed}")["trials"] for seed in (0, 1)]
    assert len({trial["source.learning_rate"] for trials in tried for trial in trials}) == 6


def test_a_search_with_a_damaged_file_is_refused_and_left_as_it_is(tmp_path):
    searched(tmp_path, 2)
    for name in ("results.json", "config.json"):
        path = tmp_path / "logs/tiny/search" / name
        whole, content = path.read_bytes(), json.loads(path.read_bytes())
        for position in range(0, len(whole), len(whole) // 3):
            flip(path, position)
            damaged = path.read_bytes()
            with suppress(ValueError):
                if json.loads(damaged) == content:  # the last digit of a number, which changes nothing
                    continue
            with pytest.raises(PipelineError, match=re.escape(str(path))):
                searched(tmp_path, 2)
            assert path.read_bytes() == damaged
            path.write_bytes(whole)
    assert len(searched(tmp_path, 2)["trials"]) == 2


@pytest.mark.parametrize("values", [[0.5], [0.0, 0.0, 0.0]])
def test_pictures_of_few_trials_leave_pyplot_alone(tmp_path, values):
    study = optuna.create_study(direction="maximize")
    space = search_params.space_of(compose_config(SearchedConfig, []))
    distributions = {name: space[name] for name in ("source.discount", "source.hidden_size")}
    params = {"source.discount": 0.9, "source.hidden_size": 64}
    for value in values:
        study.add_trial(optuna.create_trial(value=value, params=params, distributions=distributions))
    plt.switch_backend("svg")
    before, figures = dict(mpl.rcParams), plt.get_fignums()
    write_search_plots(tmp_path, study, "value")
    assert dict(mpl.rcParams) == before and plt.get_fignums() == figures and mpl.get_backend() == "svg"


@pytest.mark.parametrize(("_", "options", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_impossible_searches_are_refused(tmp_path, _, options, named):
    check_refusal(lambda given: main(tiny(tmp_path, *given)), options, named)
    assert not (tmp_path / "logs").exists()


WHOLE = (  # a run of all stages that takes seconds
    *("source.num_env_steps=250", "source.history_steps=250", "source.videos_per_task=0", "data.keep_every=[1]"),
    *("data.kept_steps=0", "data.min_final_success=0", "model.context_len=20", "evaluation.num_episodes=3"),
    *("trainer.num_iterations=2", "evaluation.videos=false", "evaluation.ablations=false", "search.num_trials=2"),
    *("evaluation.temperatures=[]", "evaluation.moved_goal=false", "evals.num_eval_episodes=4"),
)
LATER = ("evaluation.tasks=development", "search.num_trials=1")


@pytest.mark.parametrize(
    ("program", "before", "space", "more"),
    [
        ("train_gpt", 1, "{optimizer.learning_rate.initial: {low: 1e-4, high: 1e-2, log: true}}", ()),
        pytest.param(
            *("finetune", 2, "{finetune.discount: [0.9, 0.99]}"),
            ("finetune.num_iterations=1", "finetune.trial_steps=20"),
            marks=pytest.mark.long,
        ),
        pytest.param("evaluate", 2, "{policy.temperature: [0.5, 1.0]}", LATER, marks=pytest.mark.long),
        ("pipeline", 0, "{source.learning_rate: [0.01]}", LATER),
    ],
)
def test_options_of_every_program_are_searched(tmp_path, program, before, space, more):
    """A trial is a run under a name of its own, whose value is that of the program's own files."""
    options = (*WHOLE, f"search.program={program}", f"search.space={space}", *more)
    for stage in (train_agents, train_gpt)[:before]:  # whose results a trial needs
        stage.main(tiny(tmp_path, *options))
    results = read_json(main(tiny(tmp_path, *options)) / "results.json")
    keys = set(tiny(tmp_path, f"search.space={space}").search.space)
    assert {frozenset(trial) for trial in results["trials"]} == {frozenset(keys | {"value"})}
    for number, trial in enumerate(results["trials"]):
        folder = tmp_path / "logs" / f"tiny-trial-{number:03d}"
        if program in ("evaluate", "pipeline"):
            final = read_json(next(folder.glob("evaluation-*/results.json")))["final"]
            expected = final["development"]["success"]["mean"]
        else:
            expected = read_json(next(folder.glob("*/evaluations.json")))["evaluations"][-1]["score"]
        assert trial["value"] == pytest.approx(expected, abs=1e-12)
    again = read_json(main(tiny(tmp_path, *options)) / "results.json")
    assert again["times"] == results["times"], "nothing is done twice"


@pytest.mark.parametrize(
    ("program", "space", "said"),
    [
        ("train_gpt", "{model.num_heads: [3]}", "model.num_heads=3 must divide model.embed_dim=32"),
        ("train_agents", "{source.hidden_size: [-3]}", "hidden_size Input should be greater than or equal to 1"),
    ],
)
def test_a_trial_whose_options_are_not_allowed_is_the_worst(tmp_path, capsys, program, space, said):
    for _ in range(2):  # the second time, trials are read
        with pytest.raises(PipelineError, match=r"all 3 trials .* search\.space"):
            main(tiny(tmp_path, f"search.program={program}", f"search.space={space}"))
    assert said in capsys.readouterr().out
    results = read_json(tmp_path / "logs/tiny/search/results.json")
    assert [trial["value"] for trial in results["trials"]] == [None] * 3 and "best" not in results


def test_the_searched_task_is_the_training_task_that_is_hardest_by_chance(tmp_path):
    """That is a corner of the room."""
    corners = {4, 20, 24}  # that in row 0, column 0 is held out
    room = tiny(tmp_path)
    assert searched_task(room, make_env(room.env)).item() in corners
    near = tiny(tmp_path, "tasks.split=list", "tasks.held_out=[0,1,2,3,4,5,6,7,8,9]", "tasks.num_train=14")
    assert searched_task(near, make_env(near.env)).item() in corners - {4}


@needs("from_gymnasium")
def test_the_searched_task_is_the_first_one_where_chance_is_not_known(tmp_path):
    pole = tiny(tmp_path, "env=gymnasium_cart_pole", "evaluation.num_episodes=3")
    with closing(make_env(pole.env)) as env:
        assert torch.equal(searched_task(pole, env)[0], env.all_tasks()[split_tasks(env, pole).train[0]])


def test_score_tells_learning_from_not_learning(tmp_path):
    life = ("source.num_learners=4", "source.num_env_steps=3000", "source.history_steps=3000")
    config = tiny(tmp_path, *life)
    sources = (replace(config.source, learning_rate=rate) for rate in (0.01, 1e-8))
    good, hopeless = (score(replace(config, source=source), torch.device("cpu")) for source in sources)
    assert 0 <= hopeless < 0.35 < good <= 1
    far = tiny(tmp_path)  # the corner, 4 steps away, in lives of 3 steps
    short = replace(far.source, num_env_steps=3 * far.source.num_envs, unroll_length=3.0)
    assert score(replace(far, source=short), torch.device("cpu")) == 0


def test_a_trial_that_diverges_is_never_the_best(tmp_path, monkeypatch):
    """Where all values are negative, 0 would be the best one."""
    values = Mock(side_effect=[DivergedError("too fast"), -0.5, DivergedError("too fast"), -0.25])
    monkeypatch.setattr(search_params, "score", values)
    main(tiny(tmp_path))
    results = read_json(main(tiny(tmp_path, "search.num_trials=4")) / "results.json")
    assert [trial["value"] for trial in results["trials"]] == [None, -0.5, None, -0.25]
    assert results["value"] == -0.25 and results["best"].items() <= results["trials"][3].items()


@pytest.mark.long
@pytest.mark.skipif("point_game" not in extensions.NAMES, reason="their program is an extension")
def test_options_of_players_are_searched(tmp_path):
    players = "['players=tiny', 'training.num_updates=4', 'evaluation.pictures=false']"
    space = "search.space={host.epsilon: [0.1, 0.5], agent.discount: [0.9]}"
    options = (f"search.options={players}", space, "search.program=train_players", "search.num_trials=2")
    config = tiny(tmp_path, *options)
    results = read_json(main(config) / "results.json")
    assert {frozenset(trial) for trial in results["trials"]} == {frozenset({"host.epsilon", "agent.discount", "value"})}
    for number, trial in enumerate(results["trials"]):
        matches = read_json(tmp_path / f"logs/tiny-trial-{number:03d}/players/results.json")["matches"]
        rho = {pair: found["rho"]["value"] for pair, found in matches.items() if pair != "host_vs_agent"}
        of_host = [value for pair, value in rho.items() if pair.startswith("host_vs_")]
        of_agent = [value for pair, value in rho.items() if pair.endswith("_vs_agent")]
        assert (len(of_host), len(of_agent)) == (3, 8)
        assert trial["value"] == pytest.approx(sum(of_host) / 3 - sum(of_agent) / 8, abs=1e-12)
    assert read_json(main(config) / "results.json")["times"] == results["times"], "nothing is done twice"
