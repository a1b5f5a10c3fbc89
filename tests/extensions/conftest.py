"""Shared by the tests of extensions: what takes time and is not looked at is left out."""

from collections.abc import Iterator

import pytest
from harness import blank

from icrl.plots import style

LOOKED_AT = ("test_live_map.py",)  # files that compare what was drawn


@pytest.fixture(scope="module", autouse=True)
def blank_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pictures of the right size with nothing on them, in all files but those `LOOKED_AT`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name not in LOOKED_AT:
            patch.setattr(style, "figure_to_array", blank)
        yield
