"""The tour in notebooks: short to read, with an exercise and its folded solution, and with pictures that were kept.

`make notebooks` runs them, with the solutions.
"""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from icrl.runs.files import PROJECT

NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
WORDS_A_MINUTE, MINUTES = 250, 7  # of reading: the rest of the ten minutes is for cells that run
LARGEST_OUTPUT = 600_000  # characters of a notebook's pictures and videos


def cells_of(path: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Kind and source of each cell, and the cell itself."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"]), cell) for cell in cells]


def test_tour_is_read_in_minutes() -> None:
    text = " ".join(source for path in NOTEBOOKS for kind, source, _ in cells_of(path) if kind == "markdown")
    assert len(NOTEBOOKS) == 5
    assert WORDS_A_MINUTE < len(text.split()) < WORDS_A_MINUTE * MINUTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_asks_answers_and_ends_with_an_exercise(path: Path) -> None:
    cells = cells_of(path)
    first = cells[0][1]
    assert re.match(rf"# {path.stem[0]} · .*\?\n\n\*\*In short:\*\*", first), "a question, and a short answer"
    (exercise,) = [i for i, (kind, source, _) in enumerate(cells) if kind == "markdown" and "## Exercise" in source]
    (own, _), (solution, cell) = [(source, cell) for kind, source, cell in cells[exercise + 1 :] if kind == "code"]
    assert "None" in own and "# Solution" not in own
    assert solution.startswith("# Solution: ") and "assert " in solution, "it is checked where the notebooks run"
    assert cell["metadata"]["jupyter"]["source_hidden"], "it is folded"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_kept_outputs_are_pictures_and_videos_of_a_run(path: Path) -> None:
    kept = [cell for kind, _, cell in cells_of(path) if kind == "code" and cell["outputs"]]
    assert kept and all("keep_output" in cell["metadata"]["tags"] for cell in kept)
    outputs = [output for cell in kept for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert len(json.dumps(outputs)) < LARGEST_OUTPUT
    for output in outputs:
        if picture := output.get("data", {}).get("image/png"):
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
            assert pixels.shape[0] >= 200 and pixels.std() > 5, "not blank"
    videos = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    for video in map("".join, videos):
        (content,) = re.findall(r'src="data:video/mp4;base64,([^"]+)"', video)
        assert base64.b64decode(content)[4:8] == b"ftyp"
    assert len(videos) == (path.stem[0] in "24"), "agents walk in notebook 2, the model in notebook 4"
