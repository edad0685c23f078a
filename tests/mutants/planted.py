"""A pytest plug-in: a module is imported with the fault that the environment names."""

import importlib.machinery
import json
import os
from types import CodeType
from typing import Any

VARIABLE = "PLANTED_FAULT"
"""Its value in JSON: a file, the bytes from one to another, and what stands there instead."""

usual = importlib.machinery.SourceFileLoader.get_code


def pytest_addoption() -> None:
    """Compile the module with its fault, every other as usual, before anything is imported."""
    path, start, stop, instead = json.loads(os.environ[VARIABLE])

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | Any:
        if os.path.realpath(loader.path) != path:
            return usual(loader, name)
        text = loader.get_data(path)
        return compile(text[:start] + instead.encode() + text[stop:], path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
