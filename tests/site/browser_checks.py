"""What a page must do in a browser; the findings are empty where all is well."""

from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

from book.browser import WAIT_FOR_PICTURES

FORMULAS = r"""() => {
  const findings = [];
  const count = (selector) => document.querySelectorAll(selector).length;
  if (count(".math") !== count(".math > math"))
    findings.push(`${count(".math > math")} of ${count(".math")} formulas are shown`);
  for (const formula of document.querySelectorAll("math")) {
    const box = formula.getBoundingClientRect();
    const empty = formula.checkVisibility() && !(box.width && box.height);
    if (empty || formula.querySelector("merror"))
      findings.push(`broken formula: ${formula.textContent}`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent;
    if (/\\[(\[]/.test(text) && parent.checkVisibility() && !parent.closest("pre, code, script"))
      findings.push(`raw formula: ${text.trim().slice(0, 80)}`);
  }
  return findings;
}"""

OVERFLOW = r"""() => {
  const root = document.documentElement;
  const edge = root.clientWidth;
  const findings = [];
  if (root.scrollWidth > edge)
    findings.push(`the page scrolls sideways: ${root.scrollWidth} pixels wide, not ${edge}`);
  const sticksOut = ({ left, right }) =>
    right > left && ((left < edge && right > edge + 1) || (left < -1 && right > 0));
  const insideScroller = (element) => {
    for (let box = element; box && box !== document.body; box = box.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  };
  const report = (box, element, name) => {
    const shown = element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (shown && sticksOut(box))
      findings.push(`${name} sticks out: from ${box.left} to ${box.right} of ${edge}`);
  };
  const range = document.createRange();
  // What is drawn in an SVG is cut at its edge; the boxes of signs are larger than what they show.
  const reader = ":not(svg *, math *)";
  for (const element of document.body.querySelectorAll(`*${reader}`)) {
    const name = [element.localName, ...element.classList].join(".");
    if (!insideScroller(element.parentElement))
      report(element.getBoundingClientRect(), element, name);
    if (insideScroller(element)) continue;
    for (const text of element.childNodes) {
      if (text.nodeType !== Node.TEXT_NODE) continue;
      range.selectNode(text);
      report(range.getBoundingClientRect(), element, `the text of ${name}`);
    }
  }
  return findings.slice(0, 5);
}"""


FIRST_SCREEN = """() => {
  const findings = [];
  const answer = document.querySelector("article section > p");
  const bottom = answer ? answer.getBoundingClientRect().bottom : 0;
  if (bottom > innerHeight)
    findings.push(`the first paragraph ends below the first screen: at ${bottom}`);
  for (const code of document.querySelectorAll(".cell_input"))
    if (code.checkVisibility({ contentVisibilityAuto: true }))
      findings.push(`code is open: ${code.textContent.trim().slice(0, 80)}`);
  const results = [...document.querySelectorAll("article :is(figure, table, .cell_output)")];
  const first = results.find((result) => result.getBoundingClientRect().height > 0);
  const top = first ? first.getBoundingClientRect().top : Infinity;
  if (innerWidth >= 1280 && document.querySelector("details.code") && top > 800)
    findings.push(`no figure or result begins on the first screen, the first at ${top}`);
  return findings;
}"""
"""A chapter's first paragraph is its answer; on a desk's screen a figure or a result follows."""

NARROWEST = 320
"""CSS pixels: the narrowest telephone, and a laptop's window at four times its size."""

TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""JavaScript that ends when the page has answered to another size."""


def findings(
    browser: Browser, address: str, width: int, *, formulas_expected: bool = False
) -> list[str]:
    """Open a page in a window of `width` CSS pixels and return what is wrong with it."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    found: list[str] = []
    watch(page, found)
    page.goto(address)
    page.evaluate(WAIT_FOR_PICTURES)
    found += page.evaluate(FORMULAS) + page.evaluate(OVERFLOW) + page.evaluate(FIRST_SCREEN)
    if width < 2 * NARROWEST:
        page.set_viewport_size({"width": NARROWEST, "height": 800})
        page.evaluate(TWO_FRAMES)
        found += page.evaluate(OVERFLOW)
    if formulas_expected and not page.locator("math").count():
        found.append("no formula on the page")
    page.close()
    return found


def watch(page: Page, found: list[str]) -> None:
    """Note errors and requests of a page that fail or go to another host, as they happen."""

    def note(condition: bool, finding: str) -> None:
        if condition:
            found.append(finding)

    page.on("console", lambda message: note(message.type == "error", f"console: {message.text}"))
    page.on("pageerror", lambda error: note(True, f"script error: {error}"))
    # What a page no longer waits for when it is left or closed, the browser aborts.
    page.on(
        "requestfailed",
        lambda request: note(
            request.failure != "net::ERR_ABORTED",
            f"request failed: {request.url}: {request.failure}",
        ),
    )
    page.on("response", lambda response: note(response.status >= 400, f"missing: {response.url}"))
    page.on("request", lambda request: note(leaves(request.url), f"outside: {request.url}"))


def leaves(url: str) -> bool:
    """Return whether a request goes to another host."""
    return urlsplit(url).hostname not in (None, "127.0.0.1")
