"""The library's pages: complete, tied to the chapters both ways, their examples among those run."""

import doctest
import importlib
import pkgutil

import pytest
import typer

import attnlib
from attnlib.cli import app
from book.contents import page_names
from book.extensions.api import (
    CHAPTERS_NAMED,
    PAGES,
    documented,
    functions_of,
    members,
    restructured,
)
from book.pdf import ROOT
from tests.site.html_checks import anchors, soup

NOT_SHOWN = {
    "commands",
    *("__main__", "checking", "extras", "files", "interception", "opening", "provenance"),
    *("maximum", "quadrature", "special"),
}
"""What serves the modules themselves."""

CHAPTERS = [name for name in page_names(ROOT) if name.startswith("chapters/")]
MODULES = [module for names in PAGES.values() for module in names]


def test_every_module_is_shown_or_left_out_on_purpose():
    every = {module.name for module in pkgutil.iter_modules(attnlib.__path__)}
    shown = {module.split(".")[1] for module in MODULES} | {"cli"}
    assert shown | NOT_SHOWN == every
    assert not shown & NOT_SHOWN


@pytest.mark.parametrize("page", PAGES)
def test_every_function_is_on_its_page(site, page):
    expected = {
        f"{owner}.{name}"
        for module in PAGES[page]
        for owner, name, _ in members(importlib.import_module(module))
    }
    assert expected <= anchors(site / f"{page}.html")


@pytest.mark.parametrize("page", PAGES)
def test_every_chapter_that_a_docstring_names_is_linked(site, page):
    links = {link["href"] for link in soup(site / f"{page}.html").select("article a[href]")}
    known = {name.removeprefix("chapters/") for name in CHAPTERS}
    for name, text in documented().items():
        if not name.startswith(PAGES[page]):
            continue
        for named in CHAPTERS_NAMED.findall(text):
            chapters = known & set(named.replace(",", " ").split())
            assert chapters, f"{name} names no chapter in {named!r}"
            assert {f"../chapters/{chapter}.html" for chapter in chapters} <= links


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_ends_with_the_functions_that_name_it(site, chapter):
    links = soup(site / f"{chapter}.html").select(".in-library a")
    found = {link["href"].partition("#")[2].removeprefix("module-") for link in links}
    expected = set(functions_of(chapter.removeprefix("chapters/")))
    assert found - set(MODULES) == expected
    if chapter in ("chapters/jacobian", "chapters/exact", "chapters/freezing"):
        assert len(expected) > 3


def test_every_example_shown_is_one_that_pytest_runs(site):
    # pytest collects attnlib with --doctest-modules, by the same finder.
    every = [module.name for module in pkgutil.walk_packages(attnlib.__path__, "attnlib.")]
    run = {
        example.source.strip()
        for module in every
        if module != "attnlib.__main__"
        for found in doctest.DocTestFinder().find(importlib.import_module(module))
        for example in found.examples
    }
    shown = [
        example.source.strip()
        for page in PAGES
        for block in soup(site / f"{page}.html").select("article pre")
        if block.get_text().lstrip().startswith(">>>")
        for example in doctest.DocTestParser().get_examples(block.get_text())
    ]
    assert len(shown) > 100
    assert set(shown) <= run


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Return |x|^m * y_i.", r"Return \|x\|^m \* y\_i."),
        ("See `gradient`.", r"See \ :py:obj:`gradient <attnlib.exact.gradient>`\ ."),
        ("For `Normal()`.", r"For \ :py:obj:`Normal() <attnlib.scores.Normal>`\ ."),
        ("Along `axis`.", r"Along \ ``axis``\ ."),
        ("Chapter: exact.", r"Chapter: \ :doc:`exact </chapters/exact>`\ ."),
        ("A chapter: on nothing.", "A chapter: on nothing."),
        (">>> a_b\n1", ">>> a_b\n1"),
        ("With\n\n    x_i = 1,  y", "With\n\n::\n\n    x_i = 1,  y"),
        ("So::\n\n    x_i\n\n    y_i", "So::\n\n    x_i\n\n    y_i"),
    ],
)
def test_docstrings_become_what_autodoc_reads(docstring, expected):
    name = "attnlib.exact.collision_probability"
    assert restructured(docstring, name, {"chapters/exact"}).strip() == expected


def test_what_only_an_object_has_is_read_like_what_its_class_has():
    text = "What `Report.table` returns."
    assert "py:obj" in restructured(text, "attnlib.probing.monitor.Monitor.tables", set())


def test_an_argument_is_no_link_to_what_else_has_its_name():
    docstring = restructured("With `rows` rows.", "attnlib.scores.Law.sample", set())
    assert docstring.strip() == r"With \ ``rows``\  rows."


def test_a_method_of_another_class_and_a_module_of_a_package_are_no_links_either():
    assert restructured("`alpha`", "attnlib.rows", set()).strip(" \\\n") == "``alpha``"
    assert restructured("`sample`", "attnlib.probing", set()).strip(" \\\n") == "``sample``"
    assert "py:obj" in restructured("`sampling.sample`", "attnlib.rows", set())


def test_every_command_is_on_its_page_with_all_that_it_takes(site):
    page = soup(site / "api" / "command_line.html")
    for name, command in typer.main.get_command(app).commands.items():
        section = page.find(id=f"attnlib-{name}")
        said = section.get_text().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        assert f"attnlib {name}" in said
        for parameter in command.params:
            assert " ".join(parameter.help.split()) in " ".join(said.split())
            assert all(option in said for option in parameter.opts if option.startswith("-"))
