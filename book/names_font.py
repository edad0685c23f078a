"""Make static/fonts/names.woff, the signs of the Chinese and Korean names on the page of symbols.

The printed book lends it, so that no machine needs such a font. Run by hand when a test says that a
sign is missing, on the files of the npm packages @fontsource/noto-sans-sc and noto-sans-kr, which
have a few signs each; it needs brotli beside the pins:

    python -m book.names_font FOLDER/*-400-normal.woff2
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from fontTools import subset
from fontTools.merge import Merger
from fontTools.ttLib import TTFont

from book.notation import GROUPS

FONT = Path(__file__).parents[1] / "static" / "fonts" / "names.woff"


def signs() -> set[int]:
    """Return the code points of all names."""
    symbols = [symbol for group in GROUPS for symbol in group.symbols]
    return {ord(sign) for symbol in symbols for sign in symbol.chinese + symbol.korean}


def main(files: Annotated[list[Path], typer.Argument(help="*-400-normal.woff2")]) -> None:
    """Write the font of the names."""
    missing = signs()
    options = subset.Options(hinting=False, layout_features=[], notdef_outline=True)
    options.drop_tables += ["DSIG", "GSUB", "GPOS", "GDEF", "vhea", "vmtx", "BASE", "STAT"]
    with TemporaryDirectory() as folder:
        parts = []
        for file in files:
            font = TTFont(file)
            if found := missing & set(font.getBestCmap()):
                missing -= found
                part = subset.Subsetter(options)
                part.populate(unicodes=found)
                part.subset(font)
                font.flavor = None
                parts.append(f"{folder}/{file.stem}.ttf")
                font.save(parts[-1])
        font = Merger().merge(parts)
    font.flavor = "woff"
    font.save(FONT)
    typer.echo(f"{FONT}: {FONT.stat().st_size} bytes, {len(missing)} signs missing")


if __name__ == "__main__":
    typer.run(main)
