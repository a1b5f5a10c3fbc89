"""Hooks of the documentation site: pages and pictures outside of `docs/`, links to them, and the page in the browser.

README.md is the front page. A link to a file that is no page goes to the repository if `repo_url` is set in mkdocs.yml;
otherwise the name of the file stays, as code. A link to a file that does not exist is a warning, which ends a strict
build. Titles are shown without the files that they name in brackets, which are in the text below; anchors stay.
"""

import logging
import posixpath
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ADDED = {  # page of the site: file of the repository
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "benchmarks.md": "benchmarks/README.md",
}
API = "src/icrl/api.py"
DEMO = "demo/"  # folder of the page in the browser
PICTURES = (".png", ".gif", ".svg")
_CODE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+ .*?) \(((?:`[^`]*`(?:, )?)+)\)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_log = logging.getLogger("mkdocs.hooks.icrl")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, the pictures of benchmarks/, and the page in the browser."""
    for page, path in ADDED.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    page_files = runpy.run_path(str(ROOT / "src/icrl/extensions/demo/page.py"))["page_files"]  # icrl is not installed
    for name, content in page_files((ROOT / "examples/demo/checkpoint.js").read_bytes()).items():
        files.append(File.generated(config, DEMO + name, content=content))
    pages = [
        path.read_text(encoding="utf-8") for path in (*ROOT.glob("docs/*.md"), *(ROOT / p for p in ADDED.values()))
    ]
    shown = {name for page in pages for name in re.findall(r"\((?:\.\./)?(benchmarks/results/\S+\.png)\)", page)}
    for name in sorted(shown):
        if (ROOT / name).is_file():  # otherwise the link is reported
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, which are relative to its place in the repository, outside of code blocks."""
    path = ADDED.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    of_site = {name: uri for uri, name in ADDED.items()} | {API: "api.md"}
    titles = dict(_titles(config.nav))

    def link(found: re.Match[str]) -> str:
        is_picture, text, target = found.groups()
        name, mark, anchor = target.partition("#")
        if not name or "://" in target or target.startswith("mailto:"):
            return found[0]
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        uri = of_site.get(name, name.removeprefix("docs/"))
        if files.get_file_from_path(uri) is not None:
            shown = titles.get(uri, text) if text in (name, posixpath.basename(name)) else text
            return f"{is_picture}[{shown}]({uri}{mark}{anchor})"
        if not (ROOT / name).exists():
            _log.warning("%s: the link %s leads to no file", path, target)
        elif config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{name})"
        code = f"`{name}`"
        return code if text.strip("`") in (name, posixpath.basename(name)) else f"{text} ({code})"

    slug = config.mdx_configs["toc"]["slugify"]

    def heading(found: re.Match[str]) -> str:
        return f"{found[1]} {{#{slug(found[0].lstrip('# ').replace('`', ''), '-')}}}\n\n*In {found[2]}*"

    return _outside_code(markdown, lambda text: _HEADING.sub(heading, _LINK.sub(link, text)))


def _titles(nav: Any) -> Iterator[tuple[str, str]]:
    """Pages of a part of the navigation, with their titles, which stand for names of files in links."""
    if isinstance(nav, list):
        for part in nav:
            yield from _titles(part)
    else:
        for title, part in nav.items():
            yield from [(part, title)] if isinstance(part, str) else _titles(part)


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The text with its parts outside of code blocks changed."""
    parts, end = list[str](), 0
    for block in _CODE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])
