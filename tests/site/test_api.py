"""The library's pages: complete, and tied to the chapters both ways."""

import importlib
import pkgutil

import pytest
import typer

import attnlib
from attnlib.cli import app
from book.extensions.api import CHAPTERS_NAMED, documented, members
from book.extensions.api import PAGES as LISTED
from tests.site.checks import PAGES, anchors, soup

NOT_SHOWN = {
    "commands",
    *("__main__", "checking", "extras", "interception", "opening"),
    *("maximum", "quadrature", "special"),
}
"""What serves the modules themselves."""

CHAPTERS = [name for name in PAGES if name.startswith("chapters/")]
MODULES = [module for names in LISTED.values() for module in names]


def test_every_module_is_shown_or_left_out_on_purpose():
    every = {module.name for module in pkgutil.iter_modules(attnlib.__path__)}
    library = [module for module in MODULES if module.startswith("attnlib.")]
    shown = {module.split(".")[1] for module in library} | {"cli"}
    assert shown | NOT_SHOWN == every
    assert not shown & NOT_SHOWN


@pytest.mark.parametrize("page", LISTED)
def test_functions_and_chapters_are_tied_both_ways(site, page):
    members_of = [members(importlib.import_module(module)) for module in LISTED[page]]
    expected = {f"{owner}.{name}" for found in members_of for owner, name, _ in found}
    assert expected <= anchors(site / f"{page}.html")
    links = {link["href"] for link in soup(site / f"{page}.html").select("article a[href]")}
    known = {name.removeprefix("chapters/") for name in CHAPTERS}
    for name, text in documented().items():
        for named in CHAPTERS_NAMED.findall(text) if name.startswith(LISTED[page]) else ():
            chapters = known & set(named.replace(",", " ").split())
            assert chapters, f"{name} names no chapter in {named!r}"
            assert {f"../chapters/{chapter}.html" for chapter in chapters} <= links
            for chapter in chapters if name not in MODULES else ():
                page_of = soup(site / "chapters" / f"{chapter}.html")
                back = [link["href"].partition("#")[2] for link in page_of.select(".in-library a")]
                assert name in back


def test_every_command_is_on_its_page_with_all_that_it_takes(site):
    page = soup(site / "api" / "command_line.html")
    for name, command in typer.main.get_command(app).commands.items():
        section = page.find(id=f"attnlib-{name}")
        said = section.get_text().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        assert f"attnlib {name}" in said
        for parameter in command.params:
            assert " ".join(parameter.help.split()) in " ".join(said.split())
            assert all(option in said for option in parameter.opts if option.startswith("-"))
