"""The page as a folder of files, from an exported checkpoint. Runs with Python alone:

python src/icrl/extensions/demo/page.py CHECKPOINT FOLDER      writes the page, serves it on this machine and opens it

ONNX Runtime Web is in the archive beside this file: two files of the npm package onnxruntime-web, whose checksums are
below. The page is opened from a file as well as by HTTP. Browsers load neither modules nor data for a file, so the
scripts are plain ones and hold WebAssembly and weights as base64 text.
"""

import base64
import gzip
import re
import sys
import tarfile
import webbrowser
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKPOINT = "checkpoint.js"
_ARCHIVE = "onnxruntime-web-1.30.0.tar.xz"
_LIBRARY, _WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
_SHA256 = {
    _LIBRARY: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    _WASM: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
_MODULES = ("room", "network", "context", "life", "map", "charts", "main")  # of the page, each after those it imports


def page_files(checkpoint: bytes) -> dict[str, bytes]:
    """Files of the page by their names; `checkpoint` is the content of `checkpoint.js`."""
    static = {name: (HERE / "static" / name).read_bytes() for name in ("index.html", "style.css")}
    return static | {"page.js": page_script(), "runtime.js": runtime_script(), CHECKPOINT: checkpoint}


def page_script() -> bytes:
    """The modules of the page joined to one plain script that starts it."""
    parts = [(HERE / "static" / f"{name}.mjs").read_text(encoding="utf-8") for name in _MODULES]
    whole = re.sub(r"^export ", "", re.sub(r"^import .*\n", "", "\n".join(parts), flags=re.M), flags=re.M)
    return f'(() => {{\n"use strict";\n{whole}\nmain();\n}})();\n'.encode()


def runtime_files() -> dict[str, bytes]:
    """ONNX Runtime Web: its JavaScript and its WebAssembly. Raises `ValueError` if the archive is damaged."""
    with tarfile.open(HERE / _ARCHIVE) as archive:
        found = {name: reader.read() for name in _SHA256 if (reader := archive.extractfile(name))}
    for name, content in found.items():
        if sha256(content).hexdigest() != _SHA256[name]:
            raise ValueError(f"{HERE / _ARCHIVE}: {name} is damaged; restore the file from the repository")
    return found


def runtime_script() -> bytes:
    """ONNX Runtime Web as a plain script: the global `ort`, and its WebAssembly in `RUNTIME`."""
    files = runtime_files()
    module, wasm = files[_LIBRARY].decode(), packed(files[_WASM])
    module = module.replace("import.meta.url", '"https://runtime.invalid/"')  # of files and workers that it never loads
    exported = re.search(r"export\{(.*?)\};", module)
    assert exported
    names = (pair.split(" as ") for pair in exported[1].split(","))
    public = ",".join(f"{name}:{local}" for local, name in names if name in ("InferenceSession", "Tensor", "env"))
    module = module[: exported.start()] + f"globalThis.ort={{{public}}};"
    return f'(()=>{{"use strict";\n{module}\n}})();\nglobalThis.RUNTIME="{wasm}";\n'.encode()


def packed(content: bytes) -> str:
    """`content` as base64 text of a gzip file, the same for the same content."""
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def serve(folder: Path) -> ThreadingHTTPServer:
    """Server of `folder` for this machine alone, on a free port; `serve_forever` runs it."""
    return ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing about requests."""


def main(arguments: Sequence[str]) -> None:
    """Write the page to a folder, serve and open it until an interrupt."""
    if len(arguments) != 2 or not Path(arguments[0]).is_file():
        sys.exit(f"usage: python {Path(__file__).name} CHECKPOINT FOLDER, with a file checkpoint.js of src.export_demo")
    checkpoint, folder = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in page_files(checkpoint.read_bytes()).items():
        (folder / name).write_bytes(content)
    with serve(folder) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"the page is at {url}, or open {(folder / 'index.html').resolve()}. Ctrl-C ends this.", flush=True)
        webbrowser.open(url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main(sys.argv[1:])
