"""Run chapters in place, by default all, in parallel: the same code gives the same bytes."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError

from attnlib._files import replace

CHAPTERS = Path(__file__).parents[1] / "chapters"
SECONDS_A_CELL = 120

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For the kernels: threads cost small matrices more than they give, and reorder sums."""


def main(paths: list[Path]) -> bool:
    """Run chapters, write those whose outputs changed, and return whether one failed."""
    os.environ.update(ONE_THREAD)
    failed = False
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, result in zip(paths, pool.map(update, paths), strict=True):
            print(f"{path}: {result}", flush=True)
            failed |= result not in ("unchanged", "updated")
    return failed


def update(path: Path) -> str:
    """Run a notebook and return "unchanged", "updated" or the error, which leaves the file."""
    before = path.read_bytes()
    notebook = nbformat.reads(before.decode("utf-8"), as_version=nbformat.NO_CONVERT)
    error = run(notebook, path.parent)
    if error is not None:
        return error
    after = (nbformat.writes(notebook) + "\n").encode("utf-8")
    if after == before:
        return "unchanged"
    replace(path, after)
    return "updated"


def run(notebook: nbformat.NotebookNode, folder: Path) -> str | None:
    """Run the cells in `folder`; return None, or an error that names its cell."""
    started: list[str] = []

    def note(cell: nbformat.NotebookNode, cell_index: int) -> None:
        started.append(cell.id)

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_A_CELL,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,  # how a stream is cut into messages depends on timing
        extra_arguments=["--IPKernelApp.log_level=40"],
        on_cell_execute=note,
    )
    try:
        asyncio.run(client.async_execute())  # closes the loop that client.execute() would leave
    except (CellControlSignal, DeadKernelError) as error:
        reason = str(error).strip().splitlines()[-1]
        return f"error in Cell {len(started) - 1} ({started[-1]}): {reason}"
    tidy(notebook)
    return None


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Drop what says nothing about the chapter: Python's version, and times that Jupyter noted."""
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]] or sorted(CHAPTERS.glob("*.ipynb"))))
