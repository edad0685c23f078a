"""Show the built site in Debian's Chromium, from a server on this machine only."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
"""The last: no request leaves this machine, whatever a page asks for."""

WAIT_FOR_PICTURES = """async () => {
  for (const picture of document.querySelectorAll("img[loading]")) picture.loading = "eager";
  const pictures = [...document.images].filter((picture) => !picture.complete);
  await Promise.all(pictures.map((picture) => new Promise((done) => {
    picture.onload = picture.onerror = done;
  })));
  return true;
}"""
"""JavaScript that ends when the pictures are there, those too that a page would load later."""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serve files without a line on the terminal for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yield the address, without a slash at its end."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def chromium_path() -> str | None:
    """Return the path of Debian's package chromium; None where it is not installed."""
    return shutil.which("chromium")


@contextmanager
def chromium(fonts: Path | None = None) -> Iterator[Browser]:
    """Start Chromium with a profile of its own, and yield it; it ends with the context.

    `fonts` is a file of fontconfig: the browser has the fonts that it names, and no others.
    """
    named = {} if fonts is None else {"FONTCONFIG_FILE": str(fonts)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=ARGUMENTS, env={**os.environ, **named}
        )
        yield browser
        browser.close()
