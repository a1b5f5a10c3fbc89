"""Strips and videos of a game show the moves that are played; staircases by hand; panels of a match's numbers."""

import itertools
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import scalar_points as scalar
from PIL import Image

from icrl.extensions.point_game import point_pictures as pictures
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS, first_agent, random_agent, random_pair, zeillinger
from icrl.extensions.point_game.point_pictures import (
    MAX_PANELS,
    draw_position,
    drawn_moves,
    play_moves,
    strip_figure,
)
from icrl.extensions.point_game.programs import train_players
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, match, measure, play
from icrl.plots.style import new_panels
from icrl.randomness import stream_seeds


def game(dimension: int = 3, max_episode_steps: int = 30, reposition: bool = False) -> PointGame:
    return PointGame(PointGameOptions(dimension, 12, 20, max_episode_steps, reposition))


@pytest.mark.parametrize("reposition", [False, True])
def test_moves_are_those_of_a_game_that_is_played(reposition: bool) -> None:
    """With the points that go and those that stay, and a title for each move."""
    removed = 0
    for seed in range(6):
        one = game(reposition=reposition)
        moves = list(play_moves(one, zeillinger, random_agent, seed))
        start = one.ask(zeillinger, one.reset(stream_seeds(seed, 1)))
        played, _ = play(one, zeillinger, random_agent, start, len(moves))
        for number, move in enumerate(moves):
            subset, axis = scalar.subsets(3)[played.subset[number, 0]], int(played.axis[number, 0])
            end = ": over" if number == len(moves) - 1 else ""
            assert move.title == f"{number + 1}: host {{{', '.join(map(str, subset))}}}, agent {axis}{end}"
            before, after = (points[number, 0] for points in (played.points, played.next_points))
            assert np.array_equal(move.before, before[before[:, 0] >= 0])
            assert np.array_equal(move.after[move.stays], after[after[:, 0] >= 0])
            removed += int((~move.stays).sum())
    assert removed > 6
    moves = list(play_moves(game(3, 4), HOSTS["all_coordinates"], AGENTS["first"], 2))  # ends with the clock
    assert [move.title.partition(", agent 0")[2] for move in moves] == ["", "", "", ": broken off"]


def test_strip_by_panels() -> None:
    moves = list(play_moves(game(2), zeillinger, first_agent, 1))
    figure = strip_figure(moves, "a game")
    assert [axes.get_title() for axes in figure.axes] == ["start", *(move.title for move in moves)]
    for axes, move in zip(figure.axes[1:], moves, strict=True):
        stays, goes = (line.get_xydata() for line in axes.lines[-2:])
        assert np.array_equal(stays, move.after[move.stays]) and np.array_equal(goes, move.after[~move.stays])
        assert (move.after < [axes.get_xlim()[1], axes.get_ylim()[1]]).all()
    for length, drawn in ((6, [*range(6)]), (20, [*range(18), 19])):  # a long game: up to the last panel but one
        long = [moves[0]._replace(title=str(number)) for number in range(length)]
        assert [move.title for move in drawn_moves(long)] == [*map(str, drawn)] and len(drawn) < MAX_PANELS


def test_a_point_that_the_last_move_removes_is_seen_beside_the_one_that_is_left() -> None:
    one = game(reposition=True)
    ends = [
        moves
        for seed in range(9)
        if (~(moves := list(play_moves(one, zeillinger, random_agent, seed)))[-1].stays).sum() == 1
    ]
    assert ends
    for moves in ends:
        figure = strip_figure(moves[-2:], "a game")
        figure.draw_without_rendering()
        axes = figure.axes[-1]
        left, removed = (axes.transData.transform(line.get_xydata())[0] for line in axes.lines[-2:])
        assert np.hypot(*(left - removed)) > 10  # pixels


def test_staircase_in_the_plane_by_hand() -> None:
    """The border in the order it is drawn, with a point above it that does not count."""
    axes = new_panels("")[1][0]
    rows = np.array([[4.0, 1.0], [1.0, 5.0], [2.0, 3.0], [3.0, 4.0]])
    draw_position(axes, rows, rows[:0], np.array([6.0, 7.0]), "")
    assert axes.lines[0].get_xydata().tolist() == [[1, 5], [2, 3], [3, 3], [4, 1], [6, 1]]
    (region, wall) = axes.collections
    assert wall.get_segments()[0].tolist() == [[1, 5], [1, 7]]
    inside = region.get_paths()[0]
    random = np.random.default_rng(0)
    for place in random.uniform(0, [6, 7], size=(200, 2)):
        assert inside.contains_point(place) == (rows <= place).all(1).any()


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "GLIDE", 3)
    monkeypatch.setattr(pictures, "HOLD", 2)
    short = game(3, 2)
    moves = list(play_moves(short, zeillinger, random_agent, 5))
    paths = pictures.write_pictures(tmp_path / "new", short, zeillinger, random_agent, 5, "a game")
    assert paths == [tmp_path / "new" / "a game.png", tmp_path / "new" / "a game.mp4"]
    with Image.open(paths[0]) as image:
        image.load()  # raises for a file that is cut off
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(paths[1])
    assert frames == 2 * pictures.HOLD + len(moves) * (pictures.GLIDE + pictures.HOLD)
    assert seconds == pytest.approx(frames / pictures.FRAMES_PER_SECOND, rel=0.05)
    with pytest.raises(ValueError, match="dimension=4"):
        pictures.write_pictures(tmp_path, game(4), random_pair, random_agent, 0, "a game")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_match_figure_shows_the_numbers(tmp_path: Path) -> None:
    pairs = {"good": (zeillinger, random_agent), "bad": (random_pair, first_agent)}
    results = measure(game(3), pairs, 60, 8, 0)
    figure = pictures.write_match_plot(tmp_path / "match.png", results, "two pairs")
    rho, survival, _, coordinates = figure.axes
    assert [line.get_xdata()[0] for line in rho.lines] == [results[name]["rho"]["value"] for name in pairs]
    for index, players in enumerate(pairs.values()):
        played = match(game(3), *players, 60, 8, 0)
        going = [1 - float((played.finished & (played.lengths <= move)).double().mean()) for move in range(9)]
        assert survival.lines[index].get_ydata() == pytest.approx(going)
        shares = [bar.get_height() for bar in coordinates.containers[index]]
        assert shares == pytest.approx((played.agent_actions / played.agent_actions.sum()).tolist())
    assert (tmp_path / "match.png").exists()


def test_each_pair_of_a_run_has_a_colour_of_its_own_and_moves_are_whole_numbers(tmp_path: Path) -> None:
    pairs = {f"{one}_vs_{other}": (random_pair, random_agent) for one, other in train_players._AMID}
    _, survival, *_ = pictures.write_match_plot(tmp_path / "match.png", measure(game(3), pairs, 5, 20, 0), "").axes
    assert len({line.get_color() for line in survival.lines}) == len(pairs)
    assert all(tick == int(tick) for tick in survival.get_xticks())


@pytest.mark.parametrize("dimension", [4, 5])
def test_names_of_actions_do_not_overlap(tmp_path: Path, dimension: int) -> None:
    pairs = {"one": (random_pair, random_agent)}
    figure = pictures.write_match_plot(tmp_path / "match.png", measure(game(dimension), pairs, 5, 8, 0), "")
    for axes in figure.axes[2:]:
        low, high = axes.get_xlim()
        shown = (label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high)
        boxes = [label.get_window_extent() for label in shown]
        assert len(boxes) > 3 and all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
