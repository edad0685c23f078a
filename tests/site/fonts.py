"""The fonts that Chromium has in the tests: wide ones that matplotlib brings, and no others."""

from pathlib import Path

import matplotlib as mpl

FOLDER = Path(mpl.get_data_path()) / "fonts" / "ttf"

FAMILIES = {
    "sans-serif": "DejaVu Sans",
    "serif": "DejaVu Serif",
    "monospace": "DejaVu Sans Mono",
}

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


def configuration(folder: Path) -> Path:
    """Write the file of fontconfig that names these fonts, and nothing else, to a folder."""
    text = CONFIGURATION.format(
        folder=FOLDER,
        cache=folder / "cache",
        accepted="".join(map(FAMILY.format, FAMILIES.values())),
        aliases="\n".join(ALIAS.format(*pair) for pair in FAMILIES.items()),
    )
    file = folder / "fonts.conf"
    file.write_text(text, encoding="utf-8")
    return file
