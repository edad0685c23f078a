"""Photograph pages of the built site, by default all: two widths, two colour schemes."""

import sys
from itertools import product
from pathlib import Path
from typing import Literal

from book.browser import WAIT_FOR_PICTURES, WIDTHS, chromium, serve
from book.contents import page_names

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "screenshots"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TALLEST = 1500
"""Pixels: a taller picture is shrunk until its letters cannot be read."""


def main(pages: list[str]) -> None:
    """Write each page as pictures numbered from the top."""
    FOLDER.mkdir(exist_ok=True)
    with serve(ROOT / "_build" / "html") as address, chromium() as browser:
        for name, width, scheme in product(pages, WIDTHS, SCHEMES):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page.goto(f"{address}/{name}.html")
            page.evaluate(WAIT_FOR_PICTURES)
            height = int(page.evaluate("document.documentElement.scrollHeight"))
            for part, top in enumerate(range(0, height, TALLEST), start=1):
                path = FOLDER / f"{name.replace('/', '-')}-{width}-{scheme}-{part}.png"
                tall = min(TALLEST, height - top)
                page.screenshot(
                    path=path,
                    full_page=True,
                    clip={"x": 0, "y": top, "width": width, "height": tall},
                )
            page.close()


if __name__ == "__main__":
    main(sys.argv[1:] or page_names(ROOT))
