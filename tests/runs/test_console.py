"""Output that is closed, full, not UTF-8, or read by nobody any more."""

import io
import os
import subprocess
import sys
from typing import IO

import pytest

from icrl.app.command_line import run_program
from icrl.app.root import Config
from icrl.runs.files import PROJECT

TEXT = "größe " * 20_000  # more than a pipe holds


def show(_: Config) -> None:
    sys.stdout.write(TEXT)


def code_of(stdout: IO[str] | None, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """How a stage ends that writes to `stdout`."""
    monkeypatch.setattr("sys.argv", ["stage", *arguments])
    monkeypatch.setattr("sys.stdout", stdout)
    try:
        run_program(show, Config, "train_gpt", "", "all options")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_who_is_read_by_nobody_ends_quietly(arguments, monkeypatch, capsys):
    there, here = os.pipe()
    os.close(there)
    with os.fdopen(here, "w", encoding="utf-8") as unread:
        assert code_of(unread, monkeypatch, *arguments) == 141
        unread.write("more")  # goes nowhere, at the interpreter's end too
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", b"gr\\xf6\\xdfe"), ("utf-8", "größe".encode())])
def test_what_an_encoding_lacks_is_written_as_escapes(encoding, shown, monkeypatch):
    written = io.BytesIO()
    assert code_of(io.TextIOWrapper(written, encoding=encoding), monkeypatch) == 0
    assert written.getvalue().startswith(shown + b" ")


def test_a_program_runs_with_its_outputs_closed_and_without_a_backend(tmp_path):
    """An MPLBACKEND that names no backend keeps nobody from drawing."""
    program = (
        "import sys; from icrl.plots.style import Figure; from icrl.app.command_line import run_program\n"
        "from icrl.app.root import Config\n"
        "def main(config):\n"
        f"    with open({str(tmp_path / 'file')!r}, 'w') as file:\n"
        "        print('shown'); print('shown', file=sys.stderr)\n"
        "        file.write('kept')\n"
        "run_program(main, Config, 'train_gpt', '', 'all options')"
    )
    command = f'exec "{sys.executable}" -c "$0" >&- 2>&-'
    ended = subprocess.run(
        ["/bin/sh", "-c", command, program], cwd=PROJECT, env=os.environ | {"MPLBACKEND": "nonsense"}, check=False
    )
    assert ended.returncode == 0
    assert (tmp_path / "file").read_text() == "kept"
