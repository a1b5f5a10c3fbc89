"""Saved players and earlier selves: what plays is the network of the update that its name says."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from point_learners import CPU, run

from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.as_gymnasium.environments import stream_seeds as seeds_of_envs
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.gymnasium import make_batched, make_single
from icrl.extensions.point_game.players.learners import Players
from icrl.extensions.point_game.players.trained_players import load_player
from icrl.extensions.point_game.programs import train_players
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, match, play
from icrl.extensions.point_game.rules import PADDING, canonical, random_starts
from icrl.randomness import stream_seeds
from icrl.runs.files import read_json

SEEDS = stream_seeds(3, 200)
OPTIONS = {"dimension": 3, "max_num_points": 4, "max_value": 4, "max_episode_steps": 6, "reposition": True}


def networks(folder: Path, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """Networks by side in the checkpoint `name`."""
    state = torch.load(folder / f"{name}.pt", weights_only=True)
    return {side: state[side]["network"] for side in ("host", "agent") if side in state}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a run of 12 updates with snapshots; only to be read."""
    root = tmp_path_factory.mktemp("trained")
    run(root, "checkpoints.snapshot_interval=4", "evaluation.eval_interval=4")
    return root


@pytest.mark.parametrize("side", ["host", "agent"])
def test_a_name_stands_for_a_checkpoint(trained: Path, side: str) -> None:
    folder = trained / "logs/tiny/players"
    best, newest = next(folder.glob(f"best_{side}-*.pt")).stem, "last-000000012"
    for name, file in (("", newest), ("@last", newest), ("@best", best), ("@4", "snapshot-000000004")):
        found = load_player(f"logs/tiny{name}", side, 3, 4, CPU, trained)
        assert same(found.network.state_dict(), networks(folder, file)[side]) and not found.network.training


def test_fewer_points_than_in_training_are_padded(trained: Path) -> None:
    points = random_starts(SEEDS, 2, 3, 4)
    padded = torch.cat([points, torch.full((200, 2, 3), PADDING)], 1)
    player = load_player("logs/tiny", "host", 3, 4, CPU, trained).player()
    assert torch.equal(player(points, torch.zeros(200)), player(padded, torch.zeros(200)))


def test_what_is_not_there_or_does_not_fit_is_refused(trained: Path, tmp_path: Path) -> None:
    for name, dimension, points, message in (
        ("logs/tiny@5", 3, 4, "logs/tiny@5.* which has 4, 8, 12"),
        ("logs/nobody", 3, 4, "logs/nobody: there is no finished run of train_players in"),
        ("logs/nobody@3", 3, 4, "logs/nobody@3.* none"),
        ("logs/tiny", 4, 4, "dimension=4: .* dimension=3"),
        ("logs/tiny", 3, 5, "max_num_points=5: .*_points=4"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_player(name, "agent", dimension, points, CPU, trained)
    root = shutil.copytree(trained, tmp_path / "root")
    run(root, "name=alone", "host.player=zeillinger", "agent.opponents=host")
    with pytest.raises(ConfigError, match=r"logs/alone: .*players that trained its host"):
        run(root, "name=other", "host.player=logs/alone", "agent.opponents=host")
    (root / "logs/tiny/players/finished.json").unlink()
    with pytest.raises(ConfigError, match="no finished run"):
        run(root, "name=other", "agent.opponents=[logs/tiny@best]")


def test_a_saved_player_is_fixed_player_and_opponent(trained: Path, tmp_path: Path) -> None:
    """A host against it learns the same whether it is the other side or a named opponent."""
    root = Path(shutil.copytree(trained, tmp_path / "root"))
    named = run(root, "name=named", "agent.player=first", "host.opponents=[logs/tiny@8]")
    side = run(root, "name=side", "agent.player=logs/tiny@8", "host.opponents=[agent]")
    assert same(networks(named, "last-000000012")["host"], networks(side, "last-000000012")["host"])
    results = [read_json(folder / "results.json")["matches"] for folder in (named, side)]
    assert results[0]["host_vs_logs/tiny@8"] == results[1]["host_vs_agent"]
    (root / "logs/side/players/finished.json").unlink()
    shutil.rmtree(root / "logs/tiny")
    run(root, "seed=1", "checkpoints.snapshot_interval=4")
    with pytest.raises(PipelineError, match="is needed here"):  # the opponent is another one now
        run(root, "name=side", "agent.player=logs/tiny@8", "host.opponents=[agent]")


def test_two_that_do_not_learn_only_play(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(shutil.copytree(trained, tmp_path / "root"))
    folder = run(root, "name=match", "host.player=logs/tiny@4", "agent.player=last")
    found = read_json(folder / "results.json")["matches"]
    game = PointGame(PointGameOptions(**OPTIONS))
    player = load_player("logs/tiny@4", "host", 3, 4, CPU, root).player()
    for agent in ("agent", "last"):
        lengths = match(game, player, AGENTS["last"], 40, 6, 0).lengths
        assert found[f"host_vs_{agent}"]["mean_length"] == lengths.double().mean().item()
    assert not list(folder.glob("*.pt")) and "host " in capsys.readouterr().out


@pytest.mark.parametrize("role", ["host", "agent"])
def test_saved_players_in_gymnasium(trained: Path, role: str) -> None:
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


# ---- earlier selves, more updates


def test_the_league_holds_earlier_selves(tmp_path: Path) -> None:
    """Two selves, the newest of one each third update: those of updates 9 and 12, which play in games of their own."""
    league = ("training.league_size=2", "training.league_interval=3", "host.opponents=[agent,league]")
    folder = run(tmp_path, *league, "agent.opponents=[host,league]", "checkpoints.snapshot_interval=3")
    state = torch.load(folder / "last-000000012.pt", weights_only=True)
    results = read_json(folder / "results.json")["matches"]
    for side in ("host", "agent"):
        for member, update in enumerate((12, 9)):
            assert same(state[side]["league"][member], networks(folder, f"snapshot-{update:09d}")[side])
        assert len(state[side]["games"]) == 3
    assert results["host_vs_league_1"] == results["host_vs_agent"] == results["league_1_vs_agent"]
    assert "league_1_vs_league_2" not in results and "zeillinger_vs_league_1" not in results


def test_a_finished_run_goes_on_with_more_updates(tmp_path: Path) -> None:
    """The networks are those of one run with so many updates. A schedule over a share of all of them is refused."""
    folder = run(tmp_path / "short")
    before = read_json(folder / "results.json")["matches"]
    assert run(tmp_path / "short", "training.num_updates=20") == folder
    whole = run(tmp_path / "long", "training.num_updates=20")
    for side in ("host", "agent"):
        assert same(networks(folder, "last-000000020")[side], networks(whole, "last-000000020")[side])
    assert read_json(folder / "results.json")["matches"] == read_json(whole / "results.json")["matches"] != before
    with pytest.raises(ConfigError, match=r"training\.num_updates=20, but .* has 12: it can only be raised"):
        run(tmp_path / "short")
    linear = "host.epsilon={kind: linear, progress: percent, points: [[0, 1], [1, 0]]}"
    run(tmp_path / "share", linear, "training.num_updates=3")
    with pytest.raises(ConfigError, match=r"num_updates=3, .* has 5: host\.epsilon with progress: per"):
        run(tmp_path / "share", linear, "training.num_updates=5")


def test_the_best_player_is_that_of_the_best_worst_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host by its least rho against fixed agents, the agent by the greatest of fixed hosts against it; of equal
    ones the first. Matches between the two learners do not count."""
    rhos = {4: (0.2, 0.5, 0.3), 8: (0.6, 0.3, 0.4), 12: (0.3, 0.3, 0.3)}
    seen: list[int] = []

    def evaluate(config, players: Players, *, final: bool = False):
        at = seen[-1] if seen and final else 4 * (len(seen) + 1)
        seen.append(at)
        names = ("host_vs_random", "host_vs_first", "zeillinger_vs_agent")
        found = dict(zip(names, rhos[at], strict=True)) | {"host_vs_agent": 1 - at / 100}
        return {name: {"rho": {"value": rho, "low": rho, "high": rho}} for name, rho in found.items()}

    monkeypatch.setattr(train_players, "evaluate", evaluate)
    folder = run(tmp_path, "evaluation.eval_interval=4", "checkpoints.snapshot_interval=4")
    assert seen == [4, 8, 12, 12]
    for side, best in (("host", 8), ("agent", 4)):
        assert [path.stem for path in folder.glob(f"best_{side}-*.pt")] == [f"best_{side}-{best:09d}"]
        kept = networks(folder, f"best_{side}-{best:09d}")
        assert kept.keys() == {side} and same(kept[side], networks(folder, f"snapshot-{best:09d}")[side])
