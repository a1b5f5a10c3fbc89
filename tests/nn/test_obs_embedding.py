"""What an observation is embedded as, and where in a larger grid a framed room lies."""

import itertools

import pytest
import torch
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import EnvSpec
from icrl.nn.gpt import ObsEmbedding

CONFIG = replace(load_config().model, embed_dim=16, max_size=8)
SPEC = EnvSpec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
CPU = torch.device("cpu")


def embedding(obs_encoding: str, width: int = 5, num_layers: int = 1) -> ObsEmbedding:
    config = replace(CONFIG, obs_encoding=obs_encoding)
    return ObsEmbedding(config, SPEC._replace(num_obs=num_layers * width * width, width=width)).eval()


def embedded(tables: ObsEmbedding, *obs: int) -> Tensor:
    """One window with these observations, `[T, D]`."""
    return tables(torch.tensor([obs]), tables.corners(1, CPU))[0]


@pytest.mark.parametrize(("obs_encoding", "corner"), [("coordinates", 0), ("framed", 1)])
def test_row_and_column_are_added(obs_encoding: str, corner: int) -> None:
    """Framed, a room of side 5 in the middle of a grid of side 8 begins at row and column (8 - 5) // 2."""
    tables = embedding(obs_encoding)
    rows, columns = (table.weight for table in tables.tables)
    got = embedded(tables, *range(25))
    for row, column in itertools.product(range(5), range(5)):
        assert torch.equal(got[row * 5 + column], rows[corner + row] + columns[corner + column])


@pytest.mark.parametrize(("obs_encoding", "corner"), [("coordinates", 0), ("framed", 2)])
def test_layers_of_cells_have_a_vector_each(obs_encoding: str, corner: int) -> None:
    tables = embedding(obs_encoding, width=3, num_layers=2)
    rows, columns, layers = (table.weight for table in tables.tables)
    got = embedded(tables, *range(18))
    for layer, row, column in itertools.product(range(2), range(3), range(3)):
        expected = rows[corner + row] + columns[corner + column] + layers[layer]
        assert torch.equal(got[layer * 9 + row * 3 + column], expected)


@pytest.mark.parametrize("obs_encoding", ["coordinates", "framed"])
def test_a_larger_room_is_read_with_the_same_tables(obs_encoding: str) -> None:
    """With coordinates, cell (2, 3) has one code in any room; framed, cells as far from the middle have."""
    small, large = embedding(obs_encoding, 5, num_layers=2), embedding(obs_encoding, 7, num_layers=2)
    large.load_state_dict(small.state_dict())
    shift = {"coordinates": 0, "framed": (8 - 5) // 2 - (8 - 7) // 2}[obs_encoding]
    assert torch.equal(embedded(small, 2 * 5 + 3), embedded(large, (2 + shift) * 7 + 3 + shift))


def test_training_draws_every_place_that_fits_equally_often_for_each_window() -> None:
    tables, number = embedding("framed").train(), 16_000
    torch.manual_seed(0)
    corners = tables.corners(number, CPU)
    assert corners.shape == (2, number, 1)
    frequency = torch.bincount(corners[0, :, 0] * 4 + corners[1, :, 0]) / number
    assert len(frequency) == 16 and (frequency - 1 / 16).abs().max() < 0.01


def test_windows_lie_at_their_own_places() -> None:
    tables = embedding("framed")
    rows, columns = (table.weight for table in tables.tables)
    corners = torch.tensor([[[0], [3]], [[2], [1]]])
    got = tables(torch.tensor([[0, 24, 7], [0, 24, 7]]), corners)
    for window, (top, left) in enumerate(((0, 2), (3, 1))):
        for step, (row, column) in enumerate(((0, 0), (4, 4), (1, 2))):
            assert torch.equal(got[window, step], rows[top + row] + columns[left + column])


@pytest.mark.parametrize("obs_encoding", ["cell", "coordinates"])
def test_other_encodings_draw_nothing(obs_encoding: str) -> None:
    tables, before = embedding(obs_encoding).train(), torch.get_rng_state()
    assert not tables.corners(9, CPU).any()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_room_that_fills_the_grid_has_one_place() -> None:
    full = embedding("framed", width=8)
    assert not full.corners(9, CPU).any() and not full.train().corners(9, CPU).any()


@pytest.mark.parametrize(("obs_encoding", "width"), [("cell", 5), ("coordinates", 0), ("framed", 0)])
def test_cells_have_a_vector_each(obs_encoding: str, width: int) -> None:
    """Also where the world is no square room."""
    config = replace(CONFIG, obs_encoding=obs_encoding)
    tables = ObsEmbedding(config, SPEC._replace(width=width))
    (table,) = tables.tables
    assert torch.equal(embedded(tables, *range(25)), table.weight)
    assert len({tuple(vector) for vector in table.weight.tolist()}) == 25
