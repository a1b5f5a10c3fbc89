"""The folder of the page: made by Python alone, complete, and served."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from demo_pages import COMMITTED, needs_node

from icrl.extensions.demo import page


def test_make_demo_writes_and_serves_the_page_with_python_alone(tmp_path: Path) -> None:
    """`-I -S`: without installed packages, as in a fresh clone."""
    command = [sys.executable, "-I", "-S", str(page.HERE / "page.py"), str(COMMITTED), str(tmp_path / "page")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"BROWSER": "true"}) as process:
        try:
            assert process.stdout
            url = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert url
            for name in ("", "style.css", "page.js", "runtime.js", page.CHECKPOINT):
                with urlopen(url[0] + name, timeout=30) as answer:
                    assert answer.read() == (tmp_path / "page" / (name or "index.html")).read_bytes()
        finally:
            process.terminate()
    check_needs_no_network({path.name: path.read_bytes() for path in (tmp_path / "page").iterdir()})


def check_needs_no_network(files: dict[str, bytes]) -> None:
    linked = re.findall(rb'(?:src|href)="([^"]+)"', files["index.html"])
    assert {name.decode() for name in linked} - {"data:,"} == files.keys() - {"index.html"}
    for name in ("index.html", "style.css", "page.js"):
        assert re.findall(rb"https?://[^\"' ]+", files[name]) in ([], [b"http://www.w3.org/2000/svg"]), name


def in_node(script: str) -> Any:
    """What a script prints that imports modules of the page from `STATIC`."""
    command = ["node", "--input-type=module", "-e", script.replace("STATIC", (page.HERE / "static").as_uri())]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


ONE_GOAL = """
const { Page } = await import("STATIC/main.mjs");
const goals = (held_out, goal) => ({ checkpoint: { room: { size: 5 }, goals: { held_out } }, life: { goal } });
const found = [[[3], 3], [[3, 4], 3], [[3, 4, 24], 3]].map((given) => Page.prototype.heldOutGoal.call(goals(...given)));
console.log(JSON.stringify(found));
"""


@needs_node
def test_the_only_held_out_goal_is_taken_again() -> None:
    assert in_node(ONE_GOAL) == [3, 4, 24]


FULL_CONTEXT = """
const { Life } = await import("STATIC/life.mjs");
const network = { empty: () => [], read: async (rows, cache) => ({ logits: [0, 0, 1, 0, 0], attention: null, cache }) };
const room = { size: 5, start: 12, max_steps: 10, terminates: true };
let place = 0;
const random = () => [0.1, 0.3, 0.5, 0.7, 0.9][place++ % 5];
const checkpoint = { room, context: { length: 4, kept: 3 }, plan: null };
const life = new Life(checkpoint, network, { goal: 0, random, temperature: 1 });
await life.start();
while (life.ownSteps().length < 4) await life.step();
await life.swapPast(13);
const lengths = [life.context.steps.length];
for (let step = 0; step < 6; step++) {
  await life.step();
  lengths.push(life.context.steps.length);
}
console.log(JSON.stringify(lengths));
"""


@needs_node
def test_a_context_that_the_episode_fills_stays_as_long_with_another_past() -> None:
    assert max(in_node(FULL_CONTEXT)) == 4


def test_a_damaged_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_SHA256", dict.fromkeys(page._SHA256, "0" * 64))
    with pytest.raises(ValueError, match=r"ort\.wasm\.bundle\.min\.mjs is damaged; restore the file"):
        page.runtime_script()


@pytest.mark.parametrize("arguments", [[], ["no.js", "folder"], ["one", "two", "three"]])
def test_wrong_arguments_are_answered_by_the_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="CHECKPOINT FOLDER"):
        page.main(arguments)
