"""The documentation site, built as `make site` does. That needs the packages of docs/requirements.txt; the page of the
library does not."""

import importlib
import importlib.util
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from icrl.runs.files import PROJECT


def test_the_page_of_the_library_is_that_of_its_docstrings() -> None:
    made = runpy.run_path(str(PROJECT / "docs/library_page.py"))["library_page"]()
    assert (PROJECT / "docs/api.md").read_text(encoding="utf-8") == made, "run `make docs`"
    assert "## `icrl.load`" in made and ">>> policy = icrl.load" in made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not importlib.util.find_spec("material"):
        pytest.skip("needs mkdocs-material")
    pytest.importorskip("icrl.extensions.demo.page", reason="which the site shows")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_holds_the_page_in_the_browser_and_the_library(site: Path) -> None:
    page = importlib.import_module("icrl.extensions.demo.page")
    checkpoint = (PROJECT / "examples/demo" / page.CHECKPOINT).read_bytes()
    for name, content in page.page_files(checkpoint).items():
        assert (site / "demo" / name).read_bytes() == content
    for name in ("index.html", "start.html"):
        assert 'href="demo/index.html"' in (site / name).read_text(encoding="utf-8")
    assert 'href="api.html"' in (site / "start.html").read_text(encoding="utf-8") and (site / "api.html").exists()
    sources = (site / "sources.html").read_text(encoding="utf-8")
    assert '<h2 id="a2c-srcicrlsourcesa2cpy">A2C<a' in sources, "a title for people, with the anchor of the repository"


def test_pages_opened_as_files_have_a_search_and_tables_that_fit(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    if not (chromium := shutil.which("chromium")):
        pytest.skip("needs a Chromium")
    asked = list[str]()
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.on("request", lambda request: asked.append(request.url))
        for path in site.glob("*.html"):
            opened.goto(path.as_uri())
            wide = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
            assert opened.locator(".md-typeset__scrollwrap").evaluate_all(wide) == [], path.name
        opened.click(".md-search__input")
        opened.keyboard.type("distillation")
        opened.wait_for_selector(".md-search-result__item", timeout=60_000)
        browser.close()
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
