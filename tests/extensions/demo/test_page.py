"""The folder of the page: made by Python alone, complete, and served."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from demo_pages import COMMITTED

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


def test_a_damaged_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_SHA256", dict.fromkeys(page._SHA256, "0" * 64))
    with pytest.raises(ValueError, match=r"ort\.wasm\.bundle\.min\.mjs is damaged; restore the file"):
        page.runtime_script()
