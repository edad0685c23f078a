"""The files of the site: sound, light, with old addresses that lead on."""

import gzip
import re

import pytest
import yaml

from tests.paths import ROOT
from tests.site.checks import CHECKS, PAGES, anchors, soup, tree


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound(site, name):
    page = site / f"{name}.html"
    assert [finding for check in CHECKS for finding in check(site, page)] == []
    assert tree(page).xpath("//meta[@name='description']")  # what it is about
    assert len(tree(page).xpath("//article//h1")) == 1
    assert not tree(page).xpath("//figcaption//script")  # a fence that is not closed


def test_an_old_address_leads_to_where_its_text_is_now(site):
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]
    for old in config["redirects"]:
        assert old not in PAGES  # its redirect would overwrite the page without a word
        leads = soup(site / f"{old}.html").select_one("meta[http-equiv=refresh]")["content"]
        assert ((site / old).parent / leads.partition("url=")[2]).resolve().is_file()


def test_a_place_that_moved_is_where_its_address_leads(site):
    text = (site / "_static" / "moved.js").read_text("utf-8")
    moved = dict(re.findall(r"^    (\w+): `([^`]+)`", text, re.MULTILINE))
    assert len(moved) >= 5
    for name, places in moved.items():
        targets = {pair.partition(":")[2] or pair for pair in places.split()}
        assert targets <= anchors(site / "chapters" / f"{name}.html"), name


MOST_BYTES = 70_000


def test_pages_are_light(site):
    for name in PAGES:
        sent = gzip.compress((site / f"{name}.html").read_bytes(), 6)
        assert len(sent) < MOST_BYTES, name
