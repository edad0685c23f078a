"""What tests of live figures share: the numbers on a page, and hands that move them."""

import re
from itertools import product
from time import sleep

from tests.site.checks import WIDTHS


def number(text):
    """Return the number that a text of a page starts with."""
    return float(re.match(r"[\d\u202f.]+", text)[0].replace("\u202f", ""))


def readings(figure):
    """Return the names and values below a figure."""
    names, values = (
        figure.locator(f".live-readings {tag}").all_inner_texts() for tag in ("dt", "dd")
    )
    return dict(zip(names, values, strict=True))


def settle(page):
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def addressed(page, ending):
    """Wait until the address, which follows with a delay, ends so."""
    page.wait_for_url(re.compile(re.escape(ending) + "$"), timeout=5000)


def fits(page):
    """Return whether no part of a figure sticks out, in each width and colour scheme."""
    page.add_style_tag(content="* { transition: none !important; }")  # the theme's sidebar slides
    inside = """() => [...document.querySelectorAll(".live, .live :not(svg *, pre *)")].every(
      (part) => {
        const { left, right } = part.getBoundingClientRect();
        return left >= 0 && right <= document.documentElement.clientWidth;
      })"""
    found = []
    for width, scheme in product(WIDTHS, ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.locator(f"html[data-theme={scheme}]").wait_for()
        shown = page.locator(".live svg").first.evaluate("(box) => getComputedStyle(box).filter")
        found.append(page.evaluate(inside) and (shown != "none") == (scheme == "dark"))
    return all(found)


def drag(page, figure, start, end):
    """Drag a pointer over a figure's first picture, between two places as shares of its size."""
    box = page.locator(f"#{figure} .live svg[role=img]").first
    box.scroll_into_view_if_needed()
    at = box.bounding_box()
    (x0, y0), (x1, y1) = (
        (at["x"] + x * at["width"], at["y"] + y * at["height"]) for x, y in (start, end)
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2)
    page.mouse.move(x1, y1)
    page.mouse.up()
    settle(page)


def swipe(page, x, y, by):
    """Move a finger from a place, by so many pixels across and down."""
    devices = page.context.new_cdp_session(page)
    for step in range(6):
        kind = "touchMove" if step else "touchStart"
        at = {"x": x + by[0] * step / 5, "y": y + by[1] * step / 5}
        devices.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
    devices.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    settle(page)


def moves(figure, button, label):
    """Press a figure's button, see its field move, and stop it."""
    entry = figure.get_by_label(label, exact=True)
    figure.get_by_role("button", name=button).click()
    silent = figure.locator("[aria-live=off]")
    assert silent.count() == 1  # no screen reader reads sixty results a second
    values = set()
    for _ in range(40):
        values.add(entry.input_value())
        sleep(0.05)
        if len(values) > 2:
            break
    assert len(values) > 2
    figure.get_by_role("button", name="Stop").click()
    figure.get_by_role("button", name=button).wait_for()
    assert silent.count() == 0
