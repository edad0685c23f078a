"""The short path: in the contents of each page, and at its foot."""

from pathlib import Path

import pytest

from book.contents import SHORT_PATH, page_names, short_path
from book.extensions.paths import with_dots
from tests.site.html_checks import soup

PAGES = page_names(Path(__file__).parents[2])
PATH = short_path(PAGES)


def leads_to(site, name, link):
    """Return the page that a link of a page leads to, without suffix."""
    if link["href"] == "#":
        return name
    target = (site / name).parent / link["href"]
    return target.resolve().relative_to(site.resolve()).with_suffix("").as_posix()


def test_the_short_path_goes_through_the_book_in_its_order():
    assert PATH[0] == "chapters/short_answer"
    assert PATH[-1] == "chapters/questions"
    assert [name for name in PAGES if name in PATH] == PATH


def test_a_chapter_that_the_book_does_not_have_is_skipped():
    assert short_path(["chapters/needle", "api/laws", "chapters/variance"]) == [
        "chapters/variance",
        "chapters/needle",
    ]
    assert len(short_path({f"chapters/{name}" for name in SHORT_PATH})) == len(SHORT_PATH)


@pytest.mark.parametrize("name", PAGES)
def test_the_contents_mark_the_short_path(site, name):
    contents = soup(site / f"{name}.html").select_one("nav.bd-docs-nav")
    dots = contents.select("a .short-path-mark")
    assert [leads_to(site, name, dot.find_parent("a")) for dot in dots] == PATH
    assert f"{len(PATH)} chapters" in contents.select_one(".short-path-key").get_text()


@pytest.mark.parametrize("name", PAGES)
def test_the_foot_of_a_page_says_how_the_short_path_goes_on(site, name):
    [foot] = soup(site / f"{name}.html").select("article nav.short-path")
    links = [leads_to(site, name, link) for link in foot.select("a")]
    if name == PATH[-1]:
        assert not links
        assert "it ends here" in foot.get_text()
        return
    later = [other for other in PAGES[PAGES.index(name) + 1 :] if other in PATH]
    assert links == [later[0] if later else PATH[0]]
    place = f"{PATH.index(name) + 1} of {len(PATH)}" if name in PATH else "Short path:"
    assert place in foot.get_text()
    title = soup(site / f"{links[0]}.html").select_one("article h1").get_text()
    assert foot.select_one("a").get_text() in title


def test_contents_without_a_page_of_the_path_stay_as_they_are():
    contents = '<ul><li><a href="other.html">Other</a></li></ul>'
    assert str(with_dots(contents, {"needle.html"})) == contents
