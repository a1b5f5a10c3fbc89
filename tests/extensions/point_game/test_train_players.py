"""The command that trains host and agent: what it leaves behind, how it goes on, and that it learns."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
import torch
from harness import results_of
from point_learners import run
from toy import curves

from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.programs import train_players
from icrl.runs import record as run_record
from icrl.runs.files import read_json


@pytest.fixture(scope="module", autouse=True)
def surroundings() -> Iterator[None]:
    """Without git, and with the curves of players among the results that are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "CURVES", ("host/", "agent/", "matches/"))
        patch.setattr(run_record, "git_state", lambda _: {"revision": "0", "dirty": False, "diff": ""})
        yield


def test_a_run_leaves_results_curves_and_a_checkpoint(tmp_path, capsys):
    options = "host.epsilon={kind: linear, progress: updates, points: [[0, 1], [10, 0]]}"
    folder = run(tmp_path, options)
    assert folder == tmp_path / "logs/tiny/players"
    results = read_json(folder / "results.json")["matches"]
    assert len(results) == (len(HOSTS) + 1) * (len(AGENTS) + 1)
    assert {"host_vs_agent", "host_vs_first", "all_coordinates_vs_agent"} <= set(results)
    assert all(sum(one["finished_lengths"]) + sum(one["unfinished_lengths"]) == 40 for one in results.values())
    shown = curves(folder)
    for name in ("host/loss", "agent/loss", "agent/replay_fill", "agent/moves"):
        assert [step for step, _ in shown[name]] == [2, 4, 6, 8, 10, 12]
    assert [float(at) for _, at in shown["host/epsilon"]] == pytest.approx([0.9, 0.7, 0.5, 0.3, 0.1, 0.0], abs=1e-6)
    amid = read_json(folder / "matches.json")["matches"]
    rho = {int(update): found["host_vs_agent"]["rho"]["value"] for update, found in amid.items()}
    points = [(step, float(value)) for step, value in shown["matches/host_vs_agent/rho"]]
    assert points == [(step, pytest.approx(rho[step])) for step in (5, 10, 12)]
    assert [path.name for path in sorted(folder.glob("last-*.pt"))] == ["last-000000008.pt", "last-000000012.pt"]
    (folder / "results.json").unlink()  # who are trained are still there to play again
    capsys.readouterr()
    assert run(tmp_path, options) == folder
    assert "all 12 updates of tiny are done" in capsys.readouterr().out
    assert read_json(folder / "results.json")["matches"] == results
    for path in (folder / "results.json", *folder.glob("last-*")):
        path.unlink()
    with pytest.raises(ConfigError, match="finished but has no checkpoints"):
        run(tmp_path)


def test_a_game_is_drawn_in_few_dimensions_and_one_role_may_learn_alone(tmp_path, monkeypatch):
    drawn_in: list[Path] = []
    monkeypatch.setattr(train_players, "write_pictures", lambda folder, *_: drawn_in.append(folder))
    drawn, opponents = "evaluation.pictures=true", ("host.opponents=agent", "agent.opponents=host")
    run(tmp_path / "both", "training.num_updates=1", "game.dimension=4", drawn)
    assert not drawn_in
    for fixed, learning, same in (
        ("host.player=zeillinger", "agent", ("host_vs_first", "zeillinger_vs_first")),
        ("agent.player=first", "host", ("host_vs_agent", "host_vs_first")),
    ):
        plain = ("game.reposition=false", "game.scale_observation=false", "training.num_updates=4")
        folder = run(tmp_path / learning, fixed, *opponents, *plain, drawn)
        state = torch.load(folder / "last-000000004.pt", weights_only=True)
        assert [name for name in state if name != "step"] == [learning]
        results = read_json(folder / "results.json")["matches"]
        assert results[same[0]] == results[same[1]]
        assert drawn_in.pop() == folder


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Roots of two that differ in their seed."""
    roots = [tmp_path_factory.mktemp("run") for _ in range(2)]
    for seed, root in enumerate(roots):
        run(root, f"seed={seed}")
    return roots


@pytest.fixture
def root(tmp_path: Path, two_runs: list[Path]) -> Path:
    """Copy of the first run."""
    return Path(shutil.copytree(two_runs[0], tmp_path / "root"))


def test_a_run_of_other_options_or_with_files_of_another_run_is_refused(root, two_runs):
    """Of a run that has ended, and of one that goes on from its first checkpoint."""
    folder, other = (root / "logs/tiny/players" for root in (root, two_runs[1]))
    for option in ("host.discount=0.5", "agent.net_arch=[]", "replay.size=300", "seed=1", "game.max_value=5"):
        with pytest.raises(ConfigError, match=option.partition("=")[0].replace(".", r"\.")):
            run(root, option)
    shutil.copy(other / "results.json", folder)
    with pytest.raises(PipelineError, match="is needed here"):
        run(root)
    for path in (folder / "finished.json", *folder.glob("last-000000012.*")):
        path.unlink()
    with pytest.raises(ConfigError, match=r"training\.num_updates=12"):
        run(root, "training.num_updates=10")
    shutil.copy(other / "matches.json", folder)
    with pytest.raises(PipelineError, match="is needed here"):
        run(root)


LEAGUE = ("training.league_size=2", "training.league_interval=3",
          "host.opponents=[agent,league]", "agent.opponents=[league,zeillinger]")  # fmt: skip


def test_killed_after_any_checkpoint_it_ends_with_the_same_bits(tmp_path):
    """A kill leaves what the last checkpoint says, and the best players of a later update: going on from each gives the
    files of one run."""
    options, step = (*LEAGUE, "checkpoints.checkpoint_interval=1", "checkpoints.keep_last=12"), 7
    expected = results_of(whole := run(tmp_path / "whole", *options))
    folder = tmp_path / "again/logs/tiny/players"
    folder.mkdir(parents=True)
    for path in (*whole.glob(f"last-{step:09d}.*"), *whole.glob("best_*")):
        shutil.copy(path, folder)
    earlier = {".": None, "matches.json": None}  # of which the first part was in files that are not there
    assert results_of(run(tmp_path / "again", *options)) | earlier == expected | earlier
    assert expected["."]["matches/host_vs_agent/rho"] == [5, 10, 12]


LATE = "agent.learning_rate={kind: step, progress: updates, points: [[%d, 0.001], [%d, 1e300]]}"


@pytest.mark.parametrize(
    ("first", "message", "saved"),
    [
        (4, "in update 6: agent loss, agent gradient_norm not finite.* agent", [4]),
        (11, "after update 12: agent parameters not finite.* agent", [4, 8]),
    ],
)
def test_numbers_that_are_not_finite_end_it_again_and_are_never_saved(tmp_path, first, message, saved):
    """They show in a loss or, after the last update, in the parameters; between two checkpoints."""
    given = ("checkpoints.keep_last=9", "evaluation.eval_interval=200", LATE % (first, first + 1))
    for _ in range(2):
        with pytest.raises(PipelineError, match=message + r"\.learning_rate"):
            run(tmp_path, *given)
    folder = tmp_path / "logs/tiny/players"
    assert not (folder / "finished.json").exists()
    assert sorted(path.name for path in folder.glob("last-*.pt")) == [f"last-{n:09d}.pt" for n in saved]


def test_a_short_run_learns(tmp_path):
    """Seconds of training: the host is then far better than at random, and the agent lasts longer than at random."""
    shared = ("batch_size=128", "net_arch=[{width: 64, normalization: layer}]", "learning_rate=0.003",
              "initial_rollout_length=20")  # fmt: skip
    options = (
        *("training.num_updates=200", "training.num_games=64", "replay.size=20000", "evaluation.num_final_games=200"),
        *("evaluation.eval_interval=0", "checkpoints.checkpoint_interval=0", "game.max_num_points=6"),
        "evaluation.max_moves=20",
        *("host.opponents=[agent,first]", "agent.opponents=[host,zeillinger]"),
        *(f"{role}.{option}" for role in ("host", "agent") for option in shared),
    )
    results = read_json(run(tmp_path, *options) / "results.json")["matches"]
    for host in ("random_pair", "random_subset", "all_coordinates"):
        assert results["host_vs_first"]["rho"]["low"] > results[f"{host}_vs_first"]["rho"]["high"]
    for agent in ("random", "first", "last"):
        assert results["zeillinger_vs_agent"]["rho"]["high"] < results[f"zeillinger_vs_{agent}"]["rho"]["low"]
