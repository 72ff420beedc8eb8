"""The notebooks as pages, with what they print and draw.

In: `docs/notebooks/*.ipynb`, without outputs. Out: pages, and the pictures on them, none of which is written to
`docs/`. A cell that fails ends the build. A hook of mkdocs; notebooks run beside each other, each in a process and an
empty folder of its own.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 300  # for a cell


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Runs the notebooks and adds their pages and pictures."""
    paths = sorted(FOLDER.glob("*.ipynb"))
    with ThreadPoolExecutor(max_workers=2) as pool:
        for path, ran in zip(paths, pool.map(run, paths), strict=True):
            pictures: dict[str, bytes] = {}
            text = "\n\n".join(parts(ran, path.stem, pictures))
            files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
            for name, content in pictures.items():
                files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def run(path: Path) -> Any:
    """A notebook with its outputs.

    Raises:
        CellExecutionError: a cell failed; shows which, and how.
    """
    notebook = nbformat.read(path, as_version=4)
    # Folders that the environment names may be relative to this one.
    search = [str(ROOT), *(str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    with tempfile.TemporaryDirectory() as folder:
        # Sockets in files: no ports are opened.
        config = Config({"KernelManager": {"transport": "ipc", "ip": str(Path(folder, "kernel"))}})
        client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}}, config=config)
        client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(search)})
    return notebook


def parts(notebook: Any, stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """The paragraphs of a page in Markdown; `pictures` takes what they show, by name."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source
            continue
        yield f"```python\n{cell.source}\n```"
        printed = ""
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                yield f"![What the cell above draws]({name})"
            elif output.get("name") != "stderr":
                printed += output.get("text") or data.get("text/plain", "")
        if printed:
            yield f"``` {{.text .output}}\n{printed.rstrip()}\n```"
