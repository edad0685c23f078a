"""What tests of live figures share: the numbers on a page, and hands that move them."""

import re

from experiments.real_heads import shown


def number(text):
    """Return the number that a text of a page starts with."""
    return float(re.match(r"[\d\u202f.]+", text)[0].replace("\u202f", ""))


def readings(figure):
    """Return the names and values below a figure."""
    names, values = (
        figure.locator(f".live-readings {tag}").all_inner_texts() for tag in ("dt", "dd")
    )
    return dict(zip(names, values, strict=True))


def logits_of(entry, query):
    """The logits that a query sees, from the record."""
    q, k = shown.unpack_vectors(entry["queries"]), shown.unpack_vectors(entry["keys"])
    end = query + 1 if entry["causal"] else len(k)
    return entry["scale"] * k[:end] @ q[query]


def settle(page):
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def addressed(page, ending):
    """Wait until the address, which follows with a delay, ends so."""
    page.wait_for_url(re.compile(re.escape(ending) + "$"))
