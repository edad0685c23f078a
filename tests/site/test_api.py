"""The library's pages: complete, and tied to the chapters both ways."""

import importlib
import inspect
import re

import pytest

from book.extensions.api import CHAPTERS_NAMED
from tests.books import ROOT
from tests.site.checks import PAGES, anchors, of_class, tree

SHOWN = {
    "commands",
    *("__main__", "checking", "extras", "files", "interception", "opening", "projections"),
    *("maximum", "quadrature", "special"),
}
"""What serves the modules themselves."""

SHOWN = {
    module: page
    for page in PAGES
    if page.startswith("chapters/api/")
    for module in re.findall(r"automodule:: (\S+)", (ROOT / f"{page}.md").read_text("utf-8"))
}
"""The page of each module."""

IN_LIBRARY = f"//*[{of_class('in-library')}]//a/@href"
"""The links of a chapter to what it uses of the library."""

CHAPTERS = {name.removeprefix("chapters/") for name in PAGES if name.startswith("chapters/")}


def documented(module):
    """Return the docstrings of the public functions and classes of a module, and their methods."""
    found = {}
    own = [name for name, value in vars(module).items() if inspect.getmodule(value) is module]
    for name in getattr(module, "__all__", own):
        value = getattr(module, name)
        if name.startswith("_") or not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        found[name] = inspect.getdoc(value) or ""
        for member, method in vars(value).items() if inspect.isclass(value) else ():
            if inspect.isfunction(method) and not member.startswith("_") and method.__doc__:
                found[f"{name}.{member}"] = inspect.getdoc(method)
    return {f"{module.__name__}.{name}": text for name, text in found.items()}


@pytest.mark.parametrize("name", SHOWN)
def test_functions_and_chapters_are_tied_both_ways(site, name):
    module, page = importlib.import_module(name), site / f"{SHOWN[name]}.html"
    functions = documented(module)
    assert set(functions) <= anchors(page)
    links = set(tree(page).xpath("//article//a/@href"))
    for function, text in {name: module.__doc__, **functions}.items():
        for named in CHAPTERS_NAMED.findall(text):
            chapters = CHAPTERS & set(named.replace(",", " ").split())
            assert chapters, f"{function} names no chapter in {named!r}"
            assert {f"../{chapter}.html" for chapter in chapters} <= links
            for chapter in chapters if function != name else ():
                back = tree(site / "chapters" / f"{chapter}.html").xpath(IN_LIBRARY)
                assert function in {link.partition("#")[2] for link in back}
