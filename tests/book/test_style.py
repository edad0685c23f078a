"""The colours of the figures stand out on any page; the committed drawings."""

import matplotlib as mpl
import pytest

import book
from book import drawings
from tests.nbval_compare import text_difference

WHITE, DARK_PAGE = (1.0, 1.0, 1.0), (0x12 / 255,) * 3

HUE_ROTATED = (  # the CSS filter hue-rotate(180deg), Filter Effects Module Level 1
    (-0.574, 1.430, 0.144),
    (0.426, 0.430, 0.144),
    (0.426, 1.430, -0.856),
)


def inverted(colour):
    """The colour that book/static/book.css shows on a dark page: invert(1) hue-rotate(180deg)."""
    negative = [1.0 - channel for channel in colour]
    mixed = (sum(a * b for a, b in zip(line, negative, strict=True)) for line in HUE_ROTATED)
    return tuple(min(max(channel, 0.0), 1.0) for channel in mixed)


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colour", [*book.PALETTE, book.GREY])
def test_colours_stand_out_on_light_and_dark_pages(colour):
    rgb = mpl.colors.to_rgb(colour)
    assert contrast(rgb, WHITE) >= 4.5
    assert contrast(inverted(rgb), DARK_PAGE) >= 4.5


def test_the_committed_drawings_are_drawn_so():
    for name, drawn in drawings.drawings().items():
        committed = (drawings.STATIC / name).read_text(encoding="utf-8")
        assert text_difference(committed, drawn) is None, name
