"""Page of the library, made from its docstrings: `python docs/library_page.py > docs/api.md`."""

import ast
import inspect
import re
import sys
import textwrap

import icrl

HEAD = "# Library\n\n`make docs` writes this page from the docstrings of the names in `icrl`, such as `icrl.load`.\n\n"


def library_page() -> str:
    """Markdown of all names in `icrl.__all__`, from their sources."""
    module = inspect.getmodule(icrl.load)
    parts = [_described(ast.parse(inspect.getsource(getattr(icrl, name))).body[0]) for name in icrl.__all__]
    return HEAD + "\n\n".join([_markdown(inspect.getdoc(module) or ""), *parts]) + "\n"


def _described(node: ast.stmt, prefix: str = "icrl.", level: int = 2) -> str:
    """Section of a function, or of a class and its public methods."""
    assert isinstance(node, ast.FunctionDef | ast.ClassDef), (
        f"icrl.__all__ has a name that is neither: {ast.unparse(node)}"
    )
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
    signature = "" if methods else f"`{_signature(node)}`\n\n"
    section = f"{'#' * level} `{prefix}{node.name}`\n{signature}{_markdown(ast.get_docstring(node) or '')}"
    public = [_described(one, f"{node.name}.", level + 1) for one in methods if not one.name.startswith("_")]
    return "\n\n".join([section, *public])


def _signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return "\n".join(textwrap.wrap(f"{node.name}({ast.unparse(node.args)}){returned}", 118, break_long_words=False))


def _markdown(docstring: str) -> str:
    """The text of a docstring, with its examples as code blocks."""
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        is_example = paragraph.startswith(">>>")
        shown = re.sub(r"  # doctest: .*", "", paragraph)
        paragraphs.append(f"```pycon\n{shown}\n```" if is_example else paragraph)
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    sys.stdout.write(library_page())
