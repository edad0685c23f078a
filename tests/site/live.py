"""What tests of live figures share: the numbers on a page, and hands that move them."""

import re
from itertools import product

from playwright.sync_api import expect

from experiments.real_heads import shown
from tests.site.checks import ALL_THERE, OVERFLOW, PATIENCE, SETTLED, WIDTHS


def number(text):
    """Return the number that a text of a page starts with."""
    return float(re.match(r"[\d\u202f.]+", text)[0].replace("\u202f", ""))


def readings(figure):
    """Return the names and values below a figure."""
    names, values = (
        figure.locator(f".live-readings {tag}").all_inner_texts() for tag in ("dt", "dd")
    )
    return dict(zip(names, values, strict=True))


def line(page, name):
    """The α, what multiplies, and if shown the weight that the tables have for a name."""
    row = page.locator("tr", has=page.locator(f'input[name=live-scale][value="{name}"]'))
    return [number(text.split("× ")[-1]) for text in row.locator("td").all_inner_texts()]


def logits_of(found, query):
    """The logits that a query sees, from the record."""
    q, k = shown.unpacked(found["queries"]), shown.unpacked(found["keys"])
    end = query + 1 if found["causal"] else len(k)
    return found["scale"] * k[:end] @ q[query]


def settle(page):
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def addressed(page, ending):
    """Wait until the address, which follows with a delay, ends so."""
    page.wait_for_url(re.compile(re.escape(ending) + "$"))


def fits(page):
    """Return whether nothing sticks out and figures have their colours, in every case."""
    page.evaluate(ALL_THERE)
    found = []
    for width, scheme in product(WIDTHS, ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.locator(f"html[data-theme={scheme}]").wait_for()
        page.evaluate(SETTLED)
        shown = page.locator(".live svg").first.evaluate("(box) => getComputedStyle(box).filter")
        found.append(page.evaluate(OVERFLOW) == [] and (shown != "none") == (scheme == "dark"))
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
    for _ in range(2):
        expect(entry).not_to_have_value(entry.input_value(), timeout=PATIENCE)
    figure.get_by_role("button", name="Stop").click()
    figure.get_by_role("button", name=button).wait_for()
    assert silent.count() == 0
