"""The command that trains host and agent: what it leaves behind, how it goes on, and that it learns. A saved player and
an earlier self play with the network of the update that its name says."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import results_of
from point_learners import CPU, run
from toy import curves, events_of

from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.as_gymnasium.environments import stream_seeds as seeds_of_envs
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.gymnasium import make_batched, make_single
from icrl.extensions.point_game.players.trained_players import load_player
from icrl.extensions.point_game.programs import train_players
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, match, play
from icrl.extensions.point_game.rules import PADDING, canonical, random_starts
from icrl.randomness import stream_seeds
from icrl.runs import record as run_record
from icrl.runs.files import read_json

OPTIONS = {"dimension": 3, "max_num_points": 4, "max_value": 4, "max_episode_steps": 6, "reposition": True}
FALLING = "{kind: linear, progress: updates, points: [[0, 1], [10, 0]]}"
TRAINED = (f"host.epsilon={FALLING}", "checkpoints.snapshot_interval=4", "evaluation.eval_interval=4")
OTHER = ("seed=1", "training.num_updates=8", "checkpoints.snapshot_interval=4",
         "host.epsilon={kind: linear, progress: percent, points: [[0, 1], [1, 0]]}")  # fmt: skip
SHORT = ("training.num_updates=6", "evaluation.eval_interval=0")
PLAIN = ("game.reposition=false", "game.scale_observation=false", "training.num_updates=4")
LEAGUE = ("training.league_interval=3", "checkpoints.snapshot_interval=3",
          "host.opponents=[agent,league]", "agent.opponents=[host,league,zeillinger]",
          "checkpoints.checkpoint_interval=1", "checkpoints.keep_last=12")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def surroundings() -> Iterator[None]:
    """Without git."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_record, "git_state", lambda _: {"revision": "0", "dirty": False, "diff": ""})
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a run of 12 updates with snapshots, and of one in which the agent learned alone; only to be read."""
    root = tmp_path_factory.mktemp("trained")
    run(root, *TRAINED)
    run(root, "name=alone", "host.player=zeillinger", "agent.opponents=host", *PLAIN)
    return root


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a run with another seed and a schedule over a share of its updates; only to be read."""
    root = tmp_path_factory.mktemp("other")
    run(root, *OTHER)
    return root


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run with earlier selves."""
    return run(tmp_path_factory.mktemp("league"), *LEAGUE)


@pytest.fixture
def root(tmp_path: Path, trained: Path) -> Path:
    """Copy of the trained runs, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "root"))


def networks(folder: Path, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """Networks by side in the checkpoint `name`."""
    state = torch.load(folder / f"{name}.pt", weights_only=True)
    return {side: state[side]["network"] for side in ("host", "agent") if side in state}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def matches_of(folder: Path) -> dict:
    return read_json(folder / "results.json")["matches"]


# ---- what a run leaves, and how it goes on


def test_a_run_leaves_results_curves_and_a_checkpoint(root, capsys):
    folder = root / "logs/tiny/players"
    results = matches_of(folder)
    assert len(results) == (len(HOSTS) + 1) * (len(AGENTS) + 1)
    assert {"host_vs_agent", "host_vs_first", "all_coordinates_vs_agent"} <= set(results)
    assert all(sum(one["finished_lengths"]) + sum(one["unfinished_lengths"]) == 40 for one in results.values())
    shown = curves(folder)
    for name in ("host/loss", "agent/loss", "agent/replay_fill", "agent/moves"):
        assert [step for step, _ in shown[name]] == [2, 4, 6, 8, 10, 12]
    assert [float(at) for _, at in shown["host/epsilon"]] == pytest.approx([0.9, 0.7, 0.5, 0.3, 0.1, 0.0], abs=1e-6)
    amid, events = read_json(folder / "matches.json")["matches"], events_of(folder)
    rho = {int(update): found["host_vs_agent"]["rho"]["value"] for update, found in amid.items()}
    points = [(step, float(value)) for step, value in shown["matches/host_vs_agent/rho"]]
    assert points == [(step, pytest.approx(rho[step])) for step in (4, 8, 12)]
    for pair, found in amid["12"].items():  # all moves of its 20 games
        drawn = (
            events.Histograms(tag)[-1] for tag in events.Tags()["histograms"] if f"/{pair}/" in tag and "len" in tag
        )
        assert sum(last.histogram_value.sum for last in drawn if last.step == 12) == 20 * found["mean_length"]
    assert [path.name for path in sorted(folder.glob("last-*.pt"))] == ["last-000000008.pt", "last-000000012.pt"]
    (folder / "results.json").unlink()  # who are trained are still there to play again
    assert run(root, *TRAINED) == folder
    assert "all 12 updates of tiny are done" in capsys.readouterr().out
    assert matches_of(folder) == results
    for path in (folder / "results.json", *folder.glob("last-*")):
        path.unlink()
    with pytest.raises(ConfigError, match="finished but has no checkpoints"):
        run(root, *TRAINED)


def test_one_role_may_learn_alone_and_a_game_of_many_dimensions_is_not_drawn(trained, tmp_path):
    drawn = ("evaluation.pictures=true", "game.dimension=4")
    of_host = run(tmp_path, "agent.player=first", "host.opponents=agent", *PLAIN, *drawn)
    for folder, learning, pairs in (
        (of_host, "host", ("host_vs_agent", "host_vs_first")),
        (trained / "logs/alone/players", "agent", ("host_vs_first", "zeillinger_vs_first")),
    ):
        state = torch.load(folder / "last-000000004.pt", weights_only=True)
        assert [name for name in state if name != "step"] == [learning]
        results = matches_of(folder)
        assert results[pairs[0]] == results[pairs[1]]
    assert [path.name for path in of_host.glob("*.[pm][np][g4]")] == ["matches.png"]


def test_a_run_of_other_options_or_with_files_of_another_run_is_refused(root, other):
    """Of a run that has ended, and of one that goes on from its first checkpoint."""
    folder, others = (one / "logs/tiny/players" for one in (root, other))
    for option in ("host.discount=0.5", "agent.net_arch=[]", "seed=1", "game.max_value=5"):
        with pytest.raises(ConfigError, match=option.partition("=")[0].replace(".", r"\.")):
            run(root, *TRAINED, option)
    shutil.copy(others / "results.json", folder)
    with pytest.raises(PipelineError, match="is needed here"):
        run(root, *TRAINED)
    for path in (folder / "finished.json", *folder.glob("last-000000012.*")):
        path.unlink()
    with pytest.raises(ConfigError, match=r"training\.num_updates=12"):
        run(root, *TRAINED, "training.num_updates=10")
    shutil.copy(others / "matches.json", folder)
    with pytest.raises(PipelineError, match="is needed here"):
        run(root, *TRAINED)


def test_killed_after_any_checkpoint_it_ends_with_the_same_bits(league, tmp_path):
    """A kill leaves what the last checkpoint says, and the best players of a later update: going on from each gives the
    files of one run."""
    expected, step = results_of(league), 7
    folder = tmp_path / "again/logs/tiny/players"
    folder.mkdir(parents=True)
    for path in (*league.glob(f"last-{step:09d}.*"), *league.glob("best_*"), league / "matches.json"):
        shutil.copy(path, folder)
    earlier = {".": None}  # the first part of curves was in files that are not there
    assert results_of(run(tmp_path / "again", *LEAGUE)) | earlier == expected | earlier
    assert expected["."]["matches/host_vs_agent/rho"] == [5, 10, 12]


def test_the_league_holds_earlier_selves(league):
    """Four selves, the newest of one each third update: those of updates 3 to 12, which play in games of their own."""
    state = torch.load(league / "last-000000012.pt", weights_only=True)
    results = matches_of(league)
    for side, num_games in (("host", 5), ("agent", 6)):
        for member, update in enumerate((12, 3, 6, 9)):
            assert same(state[side]["league"][member], networks(league, f"snapshot-{update:09d}")[side])
        assert len(state[side]["games"]) == num_games
    assert results["host_vs_league_1"] == results["host_vs_agent"] == results["league_1_vs_agent"]
    assert "league_1_vs_league_2" not in results and "zeillinger_vs_league_1" not in results


def test_a_finished_run_goes_on_with_more_updates(root, other, tmp_path):
    """The networks are those of one run with so many updates. A schedule over a share of all of them is refused."""
    longer = (*TRAINED, "training.num_updates=14")
    before = matches_of(root / "logs/tiny/players")
    folder, whole = run(root, *longer), run(tmp_path / "long", *longer)
    for side in ("host", "agent"):
        assert same(networks(folder, "last-000000014")[side], networks(whole, "last-000000014")[side])
    assert matches_of(folder) == matches_of(whole) != before
    with pytest.raises(ConfigError, match=r"training\.num_updates=14, but .* has 12: it can only be raised"):
        run(root, *TRAINED)
    with pytest.raises(ConfigError, match=r"num_updates=8, .* has 12: host\.epsilon with progress: per"):
        run(other, *OTHER, "training.num_updates=12")


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
    rate = "{kind: linear, progress: percent, points: [[0, 0.01], [1, 0.0005]]}"
    shared = ("batch_size=128", "net_arch=[{width: 64, normalization: layer}]", f"learning_rate={rate}",
              "initial_rollout_length=20")  # fmt: skip
    options = (
        *("training.num_updates=100", "training.num_games=64", "replay.size=20000", "evaluation.num_final_games=300"),
        *("evaluation.eval_interval=0", "checkpoints.checkpoint_interval=0", "game.max_num_points=6"),
        "evaluation.max_moves=5",
        *("host.opponents=[agent,first]", "agent.opponents=[host,zeillinger]"),
        *(f"{role}.{option}" for role in ("host", "agent") for option in shared),
    )
    results = matches_of(run(tmp_path, *options))
    for host in ("random_pair", "random_subset", "all_coordinates"):
        assert results["host_vs_first"]["rho"]["low"] > results[f"{host}_vs_first"]["rho"]["high"]
    for agent in ("random", "first", "last"):
        assert results["zeillinger_vs_agent"]["rho"]["high"] < results[f"zeillinger_vs_{agent}"]["rho"]["low"]


def test_the_best_player_is_that_of_the_best_worst_match(tmp_path, monkeypatch):
    """The host by its least rho against fixed agents, the agent by the greatest of fixed hosts against it; of equal
    ones the first. Matches between the two learners do not count."""
    rhos = {4: (0.2, 0.5, 0.3), 8: (0.6, 0.3, 0.4), 12: (0.3, 0.3, 0.3)}
    seen: list[int] = []

    def evaluate(*_, final: bool = False):
        at = seen[-1] if seen and final else 4 * (len(seen) + 1)
        seen.append(at)
        names = ("host_vs_random", "host_vs_first", "zeillinger_vs_agent")
        found = dict(zip(names, rhos[at], strict=True)) | {"host_vs_agent": 1 - at / 100}
        return {name: {"rho": {"value": rho, "low": rho, "high": rho}} for name, rho in found.items()}

    monkeypatch.setattr(train_players, "evaluate", evaluate)
    options = ("evaluation.eval_interval=4", "checkpoints.snapshot_interval=4")
    folder = run(tmp_path, *options)
    assert seen == [4, 8, 12, 12]
    for side, best in (("host", 8), ("agent", 4)):
        assert [path.stem for path in folder.glob(f"best_{side}-*.pt")] == [f"best_{side}-{best:09d}"]
        kept = networks(folder, f"best_{side}-{best:09d}")
        assert kept.keys() == {side} and same(kept[side], networks(folder, f"snapshot-{best:09d}")[side])
    known = (folder / "matches.json").read_bytes()
    for path in (folder / "matches.json", folder / "finished.json", *folder.glob("last-000000012.*")):
        path.unlink()
    with pytest.raises(ConfigError, match=r"matches\.json is missing"):
        run(tmp_path, *options)
    (folder / "matches.json").write_bytes(known)
    for path in folder.glob("best_*"):
        path.unlink()
    seen[:] = [4, 8]  # goes on from update 8, and is no better at 12
    run(tmp_path, *options)
    assert not [*folder.glob("best_*")]


# ---- saved players


def test_a_name_stands_for_a_checkpoint_and_fewer_points_than_in_training_are_padded(trained):
    folder = trained / "logs/tiny/players"
    for side in ("host", "agent"):
        best, newest = next(folder.glob(f"best_{side}-*.pt")).stem, "last-000000012"
        for name, file in (("", newest), ("@last", newest), ("@best", best), ("@4", "snapshot-000000004")):
            found = load_player(f"logs/tiny{name}", side, 3, 4, CPU, trained)
            assert same(found.network.state_dict(), networks(folder, file)[side]) and not found.network.training
    points = random_starts(stream_seeds(3, 200), 2, 3, 4)
    padded = torch.cat([points, torch.full((200, 2, 3), PADDING)], 1)
    player = load_player("logs/tiny", "host", 3, 4, CPU, trained).player()
    assert torch.equal(player(points, torch.zeros(200)), player(padded, torch.zeros(200)))


def test_what_is_not_there_or_does_not_fit_is_refused(root):
    for name, dimension, points, message in (
        ("logs/tiny@5", 3, 4, "logs/tiny@5.* which has 4, 8, 12"),
        ("logs/nobody", 3, 4, "logs/nobody: there is no finished run of train_players in"),
        ("logs/nobody@3", 3, 4, "logs/nobody@3.* none"),
        ("logs/tiny", 4, 4, "dimension=4: .* dimension=3"),
        ("logs/tiny", 3, 5, "max_num_points=5: .*_points=4"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_player(name, "agent", dimension, points, CPU, root)
    with pytest.raises(ConfigError, match=r"logs/alone: .*players that trained its host"):
        run(root, "name=other", "host.player=logs/alone", "agent.opponents=host")
    for path in (root / "logs/tiny/players").glob("last-000000012.*"):
        path.unlink()
    with pytest.raises(PipelineError, match="ended at step 12, but .* of step 8"):
        load_player("logs/tiny", "agent", 3, 4, CPU, root)
    (root / "logs/tiny/players/finished.json").unlink()
    with pytest.raises(ConfigError, match="no finished run"):
        run(root, "name=other", "agent.opponents=[logs/tiny@best]")


def test_a_saved_player_is_fixed_player_and_opponent(root, other):
    """A host against it learns the same whether it is the other side or a named opponent."""
    against = ("name=side", "agent.player=logs/tiny@8", "host.opponents=[agent]")
    named = run(root, *SHORT, "name=named", "agent.player=first", "host.opponents=[logs/tiny@8]")
    side = run(root, *SHORT, *against)
    assert same(networks(named, "last-000000006")["host"], networks(side, "last-000000006")["host"])
    assert matches_of(named)["host_vs_logs/tiny@8"] == matches_of(side)["host_vs_agent"]
    (side / "finished.json").unlink()
    shutil.rmtree(root / "logs/tiny/players")
    shutil.copytree(other / "logs/tiny/players", root / "logs/tiny/players")
    with pytest.raises(PipelineError, match="is needed here"):  # the opponent is another one now
        run(root, *SHORT, *against)


def test_two_that_do_not_learn_only_play(root, capsys, monkeypatch):
    drawn_in: list[Path] = []
    monkeypatch.setattr(train_players, "write_pictures", lambda folder, *_: drawn_in.append(folder))
    options = ("host.player=logs/tiny@4", "agent.player=last", "evaluation.pictures=true", "evaluation.max_moves=6")
    folder = run(root, "name=match", *options)
    found, game = matches_of(folder), PointGame(PointGameOptions(**OPTIONS))
    player = load_player("logs/tiny@4", "host", 3, 4, CPU, root).player()
    for agent in ("agent", "last"):
        lengths = match(game, player, AGENTS["last"], 40, 6, 0).lengths
        assert found[f"host_vs_{agent}"]["mean_length"] == lengths.double().mean().item()
    out = capsys.readouterr().out
    assert not list(folder.glob("*.pt")) and "host " in out and "updates" not in out and drawn_in == [folder]


@pytest.mark.parametrize("role", ["host", "agent"])
def test_saved_players_in_gymnasium(trained, role):
    """The learner's observations are those of a rollout against the same player."""
    side, game = ("agent" if role == "host" else "host"), PointGame(PointGameOptions(**OPTIONS))
    saved = load_player("logs/tiny@best", side, 3, 4, CPU, trained).player()
    host, agent = (HOSTS["zeillinger"], saved) if role == "host" else (saved, AGENTS["random"])
    record, _ = play(game, host, agent, game.ask(host, game.reset(seeds_of_envs(range(11, 16)))), 15)
    env = make_batched(5, role=role, opponent=f"{trained}/logs/tiny@best", scale_observation=False, **OPTIONS)
    obs, _ = env.reset(seed=11)
    for points, action in zip(record.points, record.axis if role == "agent" else record.subset, strict=True):
        assert np.array_equal(obs if role == "host" else obs["points"], canonical(points).numpy())
        obs = env.step(action.numpy())[0]
    with pytest.raises(ConfigError, match="dimension=4: the .* was trained with dimension=3"):
        make_single(role=role, opponent=f"{trained}/logs/tiny", scale_observation=True, **OPTIONS | {"dimension": 4})
