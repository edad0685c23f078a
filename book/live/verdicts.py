"""What the filters of the ledger know of each claim: its verdict, source and chapter."""

import json
import re
from pathlib import Path
from typing import Any

CLAIM = re.compile(
    r'id="claim-(.*?)".*?<strong>(.*?)</strong>.*?Source (\d+),.*?<a href="(\w+)\.html', re.DOTALL
)
"""A claim as book.claim_boxes writes it: its id, verdict, source and chapter."""

LEDGER = Path(__file__).parents[2] / "chapters" / "claims.ipynb"


def verdicts() -> dict[str, Any]:
    """Return the claims by id, and the sources with their headings, as the ledger shows them."""
    cells = json.loads(LEDGER.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown = ("".join(output.get("data", {}).get("text/html", ())) for output in outputs)
    return {
        "sources": dict(re.findall(r"^## Source (\d+): (.*)$", text, re.MULTILINE)),
        "claims": {name: facts for html in shown for name, *facts in CLAIM.findall(html)},
    }
