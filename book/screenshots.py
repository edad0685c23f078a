"""Photograph every page of the built site: two widths, two colour schemes."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer
from playwright.sync_api import Browser, Page

from book.browser import WAIT_FOR_PICTURES, WIDTHS, chromium, serve
from book.contents import page_names

ROOT = Path(__file__).parents[1]
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TALLEST = 1500
"""Pixels: a taller picture is shrunk until its letters cannot be read."""


def main(
    pages: Annotated[
        list[str] | None, typer.Argument(help="Such as chapters/variance; by default all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="A folder for the pictures.")] = ROOT / "screenshots",
) -> None:
    """Write pictures of pages of the built book."""
    out.mkdir(parents=True, exist_ok=True)
    with serve(ROOT / "_build" / "html") as address, chromium() as browser:
        for name, width, scheme in product(pages or page_names(ROOT), WIDTHS, SCHEMES):
            stem = f"{name.replace('/', '-')}-{width}-{scheme}"
            for path in photograph(browser, f"{address}/{name}.html", out / stem, width, scheme):
                typer.echo(path)


def photograph(
    browser: Browser, address: str, stem: Path, width: int, scheme: Literal["light", "dark"]
) -> Iterator[Path]:
    """Write a page as pictures numbered from the top."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    response = page.goto(address)
    if response is None or not response.ok:
        raise SystemExit(f"there is no page {address}")
    page.evaluate(WAIT_FOR_PICTURES)
    for part, top in enumerate(range(0, page_height(page), TALLEST), start=1):
        path = stem.with_name(f"{stem.name}-{part}.png")
        height = min(TALLEST, page_height(page) - top)
        page.screenshot(
            path=path, full_page=True, clip={"x": 0, "y": top, "width": width, "height": height}
        )
        yield path
    page.close()


def page_height(page: Page) -> int:
    """Return how tall the page is, in CSS pixels."""
    return int(page.evaluate("document.documentElement.scrollHeight"))


if __name__ == "__main__":
    typer.run(main)
