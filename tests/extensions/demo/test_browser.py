"""The page in headless Chromium, by clicks and keys, from a file and by HTTP. Needs playwright and a Chromium."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from demo_pages import COMMITTED

from icrl.extensions.demo import page as pages

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page")
    for name, content in pages.page_files(COMMITTED.read_bytes()).items():
        (made / name).write_bytes(content)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as tool:
        launched = tool.chromium.launch(executable_path=CHROMIUM, args=options)
        yield launched
        launched.close()


class Opened:
    """The page, with every error that its console shows."""

    def __init__(self, browser: Any, url: str, width: int = 1280, height: int = 900, motion: str = "reduce") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion=motion)
        self.errors: list[str] = []
        own = (url.rpartition("/")[0], "data:")
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: asked.url.startswith(own) or self.errors.append(asked.url))
        self.page.goto(url)
        self.page.wait_for_selector("body:not(.loading)", timeout=120_000)

    def state(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def play_until(self, condition: str) -> None:
        """Play as fast as possible until the condition holds, then pause."""
        self.page.fill("#speed", "6")
        self.page.click("#play")
        self.page.wait_for_function(condition, timeout=120_000)
        self.page.click("#play")
        self.settle()

    def step_until(self, condition: str) -> None:
        """Step until the condition holds: unlike a player that is paused, this stops at the same step every time."""
        step = "document.querySelector('#step').click(); await page.jobs;"
        self.state(f"(async () => {{ while (!({condition})) {{ {step} }} }})()")
        self.settle()

    def settle(self) -> None:
        """Wait for all that was asked for, and the next picture."""
        frames = "requestAnimationFrame(() => requestAnimationFrame(done))"
        self.state(f"page.jobs.then(() => new Promise((done) => {frames}))")

    def click_cell(self, cell: int) -> None:
        box = self.page.locator("#map svg").bounding_box()
        side = box["width"] / 92  # nine cells of ten units, and a margin of one on each side
        self.page.mouse.click(box["x"] + (cell % 9 * 10 + 6) * side, box["y"] + (cell // 9 * 10 + 6) * side)
        self.settle()


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Opened]:
    """The page from its file; a test fails if the console shows an error."""
    found = Opened(browser, (folder / "index.html").as_uri())
    yield found
    found.page.close()
    assert found.errors == []


def test_a_held_out_goal_is_found_and_the_curve_meets_the_optimum(opened: Opened) -> None:
    page = opened.page
    assert opened.state("page.checkpoint.goals.held_out.includes(page.life.goal) && !page.isPlaying")
    page.click("#step")
    opened.settle()
    assert page.text_content("#where") == "Episode 1, step 1 of 20"
    opened.play_until("page.life.episodes.length >= 14")
    finished = opened.state("page.life.episodes.map((e) => e.stepsToGoal)")
    optimum = opened.state("page.checkpoint.references.optimum[page.life.goal]")
    assert finished[0] >= optimum and sorted(finished[9:13])[:3] == 3 * [optimum]
    assert page.locator("#film li").count() == len(finished) == page.locator("#curve .dot").count()
    for name in ("model", "average", "plan", "source", "optimum", "random"):
        assert page.locator(f"#curve .series.{name}").count() == page.locator(f"#legend .{name}").count() == 1
    bars = opened.state("[...document.querySelectorAll('#film i')].map((bar) => parseFloat(bar.style.width))")
    assert 30 < sum(bars) <= 101 + len(bars) / 2  # each is rounded


def test_the_goal_moves_by_mouse_and_by_keys_but_not_to_the_start(opened: Opened) -> None:
    page = opened.page
    opened.click_cell(10)
    assert opened.state("page.life.goal") == 10 and "row 2, column 2" in page.text_content("#status")
    opened.click_cell(40)
    assert opened.state("page.life.goal") == 10 and "cannot be where" in page.text_content("#status")
    page.focus("#map")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "Enter"):  # from the cell of the last click
        page.keyboard.press(key)
    opened.settle()
    assert opened.state("page.life.goal") == 33
    assert page.locator("#curve .event").count() == 1 and opened.state("page.events.length") == 2  # in one episode
    opened.step_until("page.life.episodes.length >= 12")
    opened.click_cell(77)
    opened.step_until("page.life.episodes.length >= 70")  # it has to forget the former goal first
    assert opened.state("page.life.episodes.slice(-4).every((e) => e.goal === 77 && e.success)")


def test_the_three_things_to_try_start_by_a_click(opened: Opened) -> None:
    page = opened.page
    page.fill("#speed", "6")
    for name in ("search", "move", "blank"):
        page.click(f"#try-{name}")
        number = opened.state("page.life.frames.length")
        page.wait_for_function(f"page.isPlaying && page.life.frames.length > {number + 40}", timeout=60_000)
    assert page.is_checked("#blank") and page.locator("#curve .event").count() == 2


def test_it_plays_by_itself_and_says_what_to_try_after_three_straight_walks(browser: Any, folder: Path) -> None:
    opened = Opened(browser, (folder / "index.html").as_uri(), motion="no-preference")
    page, straight = opened.page, "page.life.episodes.slice(-3).map((episode) => episode.straight)"
    opened.state("page.setTemperature(0.3)")
    page.fill("#speed", "6")
    page.wait_for_selector("#status.hint", timeout=120_000)
    assert opened.state("page.isPlaying") and "click on another cell" in page.text_content("#status")
    page.click("#play")
    opened.settle()
    assert opened.state(straight) == [True] * 3
    opened.click_cell(9)
    assert page.locator("#status.hint").count() == 0 and "row 2, column 1" in page.text_content("#status")
    page.click("#play")
    page.wait_for_selector("#status.hint", timeout=120_000)
    assert "blank the rewards" in page.text_content("#status") and opened.errors == []
    page.close()


def test_the_dashed_star_is_seen_while_the_other_life_is_in_the_memory(opened: Opened) -> None:
    page, star = opened.page, "document.querySelector('#map .ghost').getAttribute('visibility')"
    opened.step_until("page.life.episodes.length >= 2")
    before = opened.state("page.place")
    page.click("#swap")
    opened.settle()
    assert opened.state(star) == "visible"
    page.fill("#scrub", str(before - 1))
    opened.settle()
    assert opened.state(star) == "hidden", "it was not swapped yet"
    page.click("#newest")
    opened.step_until("page.life.context.steps.every(({ episode }) => episode >= 0)")
    assert opened.state(star) == "hidden", "it has left the memory"


@pytest.mark.parametrize("name", ["runtime.js", "checkpoint.js"])
def test_a_page_with_a_damaged_file_says_so(browser: Any, folder: Path, tmp_path: Path, name: str) -> None:
    for path in folder.iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[: len(content) // 2] if path.name == name else content)
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    page.wait_for_selector("#status:not(:empty)")
    assert "missing or damaged" in page.text_content("#status") and page.text_content("#where") == ""
    page.close()


@pytest.mark.parametrize("width", [375, 320])
def test_it_is_served_and_fits_a_phone(browser: Any, folder: Path, width: int) -> None:
    with pages.serve(folder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        opened = Opened(browser, f"http://127.0.0.1:{server.server_address[1]}/", width=width)
        opened.play_until("page.life.episodes.length >= 2")
        assert opened.state("document.documentElement.scrollWidth") == width
        controls = "[...document.querySelectorAll('button, input, select')]"
        named = "(element) => element.labels?.length || element.textContent.trim() || element.ariaLabel"
        assert opened.state(f"{controls}.every({named})")
        small = "[...document.querySelectorAll('button')].filter((e) => e.getBoundingClientRect().height < 36).length"
        assert opened.state(small) == 0
        opened.page.close()
        server.shutdown()
    assert opened.errors == []
