"""The fonts that Chromium has in the tests: wide ones that matplotlib brings, and no others."""

from pathlib import Path

import matplotlib as mpl

FOLDER = Path(mpl.get_data_path()) / "fonts" / "ttf"
FAMILIES = {"sans-serif": "DejaVu Sans", "serif": "DejaVu Serif", "monospace": "DejaVu Sans Mono"}
ACCEPTED = '<pattern><patelt name="family"><string>{}</string></patelt></pattern>'
ALIAS = '<alias binding="same"><family>{}</family><prefer><family>{}</family></prefer></alias>'


def configuration(folder: Path) -> Path:
    """Write the file of fontconfig that names these fonts, and nothing else, to a folder."""
    accepted = "".join(map(ACCEPTED.format, FAMILIES.values()))
    aliases = "".join(ALIAS.format(*pair) for pair in FAMILIES.items())
    file = folder / "fonts.conf"
    file.write_text(
        f"<fontconfig><dir>{FOLDER}</dir><cachedir>{folder / 'cache'}</cachedir>"
        f"<selectfont><acceptfont>{accepted}</acceptfont>"
        f"<rejectfont><pattern/></rejectfont></selectfont>{aliases}</fontconfig>",
        encoding="utf-8",
    )
    return file
