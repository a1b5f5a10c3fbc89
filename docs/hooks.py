"""Hooks of the documentation site: pages and pictures outside of `docs/`, links to them, and the page of `icrl.api`.

README.md is the front page. A link to a file that is no page goes to the repository if `repo_url` is set in mkdocs.yml;
otherwise the name of the file stays, as code. A link to a file that does not exist is a warning, which ends a strict
build.
"""

import ast
import logging
import posixpath
import re
import textwrap
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
PICTURES = (".png", ".gif", ".svg")
_CODE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_log = logging.getLogger("mkdocs.hooks.icrl")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, the page of the library, and the pictures of benchmarks/."""
    for page, path in ADDED.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    files.append(File.generated(config, "api.md", content=api_page()))
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

    return _outside_code(markdown, lambda text: _LINK.sub(link, text))


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


def api_page() -> str:
    """Markdown of all names in `icrl.__all__`, from signatures and docstrings in the source; nothing is imported."""
    tree = ast.parse((ROOT / API).read_text(encoding="utf-8"))
    here = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imports = {
        alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    sections = [_described(here.get(name) or _imported(str(imports[name]), name)) for name in names]
    head = (
        "# Library\n\nGenerated from the docstrings of `icrl`. All names below are attributes of it: `icrl.load`.\n\n"
    )
    return head + _markdown(ast.get_docstring(tree) or "") + "\n\n" + "\n\n".join(sections) + "\n"


def _imported(module: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    path = ROOT / "src" / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)
    return next(found)


def _described(node: ast.FunctionDef | ast.ClassDef, prefix: str = "icrl.", level: int = 2) -> str:
    """Section of a function, or of a class and its public methods."""
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
    signature = "" if methods else f"```python\n{_signature(node)}\n```\n\n"
    section = f"{'#' * level} `{prefix}{node.name}`\n\n{signature}{_markdown(ast.get_docstring(node) or '')}"
    public = [_described(one, f"{node.name}.", level + 1) for one in methods if not one.name.startswith("_")]
    return "\n\n".join([section, *public])


def _signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    whole = f"def {node.name}({ast.unparse(node.args)}){returned}"
    return "\n".join(textwrap.wrap(whole, 84, subsequent_indent="    ", break_long_words=False))


def _markdown(docstring: str) -> str:
    """The text of a docstring, with its examples as code blocks."""
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        is_example = paragraph.startswith(">>>")
        shown = re.sub(r"  # doctest: .*", "", paragraph)
        paragraphs.append(f"```pycon\n{shown}\n```" if is_example else paragraph)
    return "\n\n".join(paragraphs)
