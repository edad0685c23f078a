"""The library's pages have every public function, with links to the chapters that it names."""

import importlib
import inspect
import re

import pytest

from tests.paths import ROOT
from tests.site.checks import PAGES, anchors, tree

SHOWN = {
    module: page
    for page in PAGES
    if page.startswith("chapters/api/")
    for module in re.findall(r"automodule:: (\S+)", (ROOT / f"{page}.md").read_text("utf-8"))
}
"""The page of each module."""


@pytest.mark.parametrize("name", SHOWN)
def test_every_function_is_on_its_page_and_the_chapters_that_it_names_are_linked(site, name):
    module, page = importlib.import_module(name), site / f"{SHOWN[name]}.html"
    own = [key for key, value in vars(module).items() if inspect.getmodule(value) is module]
    links = set(tree(page).xpath("//article//a/@href"))
    for key in getattr(module, "__all__", own):
        value = getattr(module, key)
        if key.startswith("_") or not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        assert f"{name}.{key}" in anchors(page)
        for chapter in re.findall(r"\bChapter: (\w+)\.", inspect.getdoc(value) or ""):
            assert f"../{chapter}.html" in links, f"{key} names the chapter {chapter!r}"
