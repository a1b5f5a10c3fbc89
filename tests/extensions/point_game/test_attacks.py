"""Attacks on `train_players`, see `tests/helpers/attacks.py`."""

import sys

import attacks
import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
OPTIONS = ("players=tiny", "device=cpu", "training.num_updates=40")
PROGRAM = attacks.Program("train_players", OPTIONS, "logs/tiny/players/.lock")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return attacks.results(PROGRAM, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("by", attacks.SIGNALS)
def test_killed_at_random_moments(undisturbed, tmp_path, by):
    attacks.kill(PROGRAM, tmp_path, by)
    attacks.check_end(PROGRAM, tmp_path, undisturbed)


def test_two_at_once(undisturbed, tmp_path):
    attacks.start_twice(PROGRAM, tmp_path)
    attacks.check_end(PROGRAM, tmp_path, undisturbed)
