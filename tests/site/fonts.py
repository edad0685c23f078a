"""The fonts that Chromium has in the tests: of those that matplotlib brings, and no others."""

from pathlib import Path

import matplotlib as mpl
import pytest

FOLDER = Path(mpl.get_data_path()) / "fonts" / "ttf"

SETS = {
    "DejaVu": {
        "sans-serif": "DejaVu Sans",
        "serif": "DejaVu Serif",
        "monospace": "DejaVu Sans Mono",
    },
    "STIX": {"sans-serif": "STIXGeneral", "serif": "STIXGeneral", "monospace": "cmtt10"},
}
"""The family of each kind: wide letters, of a face that the site names; narrow ones, of a face that
it does not name and that lacks signs."""

ONE_SET = pytest.mark.parametrize("font_set", list(SETS)[:1], indirect=True)
"""For tests that see no letters, where the others of their kind are tried with every set."""

CONFIGURATION = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir>{folder}</dir>
<cachedir>{cache}</cachedir>
<selectfont>
  <acceptfont>{accepted}</acceptfont>
  <rejectfont><pattern/></rejectfont>
</selectfont>
{aliases}
</fontconfig>
"""
FAMILY = '<pattern><patelt name="family"><string>{}</string></patelt></pattern>'
ALIAS = """<alias binding="same">
  <family>{}</family><prefer><family>{}</family></prefer>
</alias>"""


def sets() -> list[object]:
    """Return the names of the sets for parametrize: the first always, the others where slow."""
    first, *others = SETS
    return [first, *(pytest.param(other, marks=pytest.mark.slow) for other in others)]


def configuration(name: str, folder: Path) -> Path:
    """Write the file of fontconfig that names the fonts of a set, and nothing else, to a folder."""
    kinds = SETS[name]
    text = CONFIGURATION.format(
        folder=FOLDER,
        cache=folder / "cache",
        accepted="".join(map(FAMILY.format, sorted(set(kinds.values())))),
        aliases="\n".join(ALIAS.format(kind, family) for kind, family in kinds.items()),
    )
    file = folder / "fonts.conf"
    file.write_text(text, encoding="utf-8")
    return file
