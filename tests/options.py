"""A pytest plug-in: a run brings what it was asked for, and no more.

A test file starts at once. The machinery of notebooks, which takes seconds to load, is there when
notebooks are asked for: by name, by their folder, or with everything. Whole folders are shared out
to three processes, unless the command line has an `-n` of its own: one more than the two cores that
this is made for, since a kernel that starts and a page that loads leave a core idle. Each of these
computes with one thread, unless OMP_NUM_THREADS says otherwise: threads of several processes on the
same cores wait for one another.
"""

import os
from pathlib import Path

import pytest

CHAPTERS = Path(__file__).parents[1] / "chapters"


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Add options to those of pyproject.toml and the command line, before they are acted on."""
    options = early_config.known_args_namespace
    paths = asked_for(early_config)
    if any(path.suffix == ".ipynb" or path in (CHAPTERS, *CHAPTERS.parents) for path in paths):
        # pyproject.toml blocks "nbval": to be installed would be enough for it to be loaded.
        for plugin in ("nbval.plugin", "tests.notebooks.numeric"):
            early_config.pluginmanager.import_plugin(plugin)
        args[:0] = ["--nbval", "--nbval-current-env"]
    if options.numprocesses is None and any(path.is_dir() for path in paths):
        args[:0] = ["-n", "3", "--dist", "loadfile"]
    elif options.numprocesses:
        args[:0] = ["--dist", "loadfile"]  # the cells of a notebook stay together
    if "loadfile" in args:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def asked_for(config: pytest.Config) -> list[Path]:
    """Return the files and folders that are asked for; without any, those of pyproject.toml."""
    named = config.known_args_namespace.file_or_dir
    if named:
        return [Path(config.invocation_params.dir, name.split("::")[0]).resolve() for name in named]
    return [config.rootpath / name for name in config.getini("testpaths")]
