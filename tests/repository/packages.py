"""What code imports, and what the project asks for."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
BY_MODULE = packages_distributions()
OURS = {"attnlib", "book", "experiments", "claims"}


def imported(source):
    """Return the distributions that code imports, anywhere in it, without the standard library."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) if not node.level}
    modules = {name.split(".")[0] for name in names} - sys.stdlib_module_names - OURS
    return {canonicalize_name(BY_MODULE[module][0]) for module in modules}


def asked_for(*extras):
    """Return the distributions that attnlib asks for, with those of these extras."""
    found = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    for requirement in (Requirement(line) for extra in extras for line in EXTRAS[extra]):
        if requirement.name == "attnlib":
            found |= asked_for(*requirement.extras)
        else:
            found.add(canonicalize_name(requirement.name))
    return found
