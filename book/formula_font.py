"""Make static/fonts/formulas.woff2 of STIX Two Math: the signs that formulas need, in 34 kB.

Run by hand when a formula has a sign that the font lacks, as a test says. It needs the original,
which the package ziamath brings, and brotli beside the pins:

    python book/formula_font.py STIXTwoMath-Regular.ttf

Chromium leaves for a bracket or a root that may grow the room of its widest form. So forms that
nobody needs are dropped, and those of the root and of the longest brackets are made narrower.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from fontTools import subset
from fontTools.ttLib import TTFont

FONT = Path(__file__).parents[1] / "static" / "fonts" / "formulas.woff2"

SIGNS = (
    "".join(map(chr, range(0x20, 0x7F)))
    + "¬°±·×÷ˆˉ˙˜̂̃̄̇ıȷℎ"
    + "ΓΔΘΛΞΠΣΥΦΨΩαβγδεζηθικλμνξοπρςστυφχψωϑϕϖϱϵ"
    + "‖†‡…′″⁡ℒℓℝℕℤ𝔼ℙ←→↑↓↔⇒⇔↦∀∂∃∅∇∈∉∏∑−∓∗∘√∝∞∧∨∩∪∫∬∮∶∼≃≅≈≔≠≡≤≥≪≫≲≳⊂⊆⊕⊗⊤⊥⋅⋯⌈⌉⌊⌋⏞⏟⟨⟩⟶𝟏"
    + "".join(map(chr, [*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C)]))
)
"""The last are the slanted letters, Latin and Greek, into which browsers turn single ones."""

TALLEST = 2400
"""Thousandths of the size: taller brackets are put together of pieces."""

FACTS = [0, 1, 2, 3, 4, 5, 6, 7, 13, 14]
"""Names that the font says of itself, its makers and its licence among them."""


def main(original: Annotated[Path, typer.Argument(help="STIXTwoMath-Regular.ttf")]) -> None:
    """Write the font of the formulas."""
    font = TTFont(original)
    trim(font)
    options = subset.Options(
        layout_features=["flac"], hinting=False, notdef_outline=True, name_IDs=FACTS
    )
    options.drop_tables += ["DSIG"]
    options.flavor = "woff2"
    part = subset.Subsetter(options)
    part.populate(text=SIGNS)
    part.subset(font)
    subset.save_font(font, FONT, options)
    typer.echo(f"{FONT}: {FONT.stat().st_size} bytes")


def trim(font: TTFont) -> None:
    """Drop the tallest forms of brackets, and make the others of nearly one width."""
    root = font.getBestCmap()[ord("√")]
    variants = font["MATH"].table.MathVariants
    for name, forms in zip(
        variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True
    ):
        records = forms.MathGlyphVariantRecord
        if name == root:
            width = font["hmtx"][name][0]
            for record in records[1:]:
                narrow(font, record.VariantGlyph, width)
            forms.GlyphAssembly = None
        elif name.startswith(("paren", "bracket", "brace")):
            kept = [record for record in records if record.AdvanceMeasurement <= TALLEST]
            forms.MathGlyphVariantRecord = kept
            forms.VariantCount = len(kept)
            width = font["hmtx"][kept[-1].VariantGlyph][0]
            for piece in {part.glyph for part in forms.GlyphAssembly.PartRecords}:
                narrow(font, piece, width)


def narrow(font: TTFont, name: str, width: int) -> None:
    """Draw a sign narrower, if it is wider than `width`."""
    advance, _ = font["hmtx"][name]
    if advance <= width:
        return
    table: Any = font["glyf"]
    glyph = table[name]
    glyph.coordinates.scale((width / advance, 1))
    glyph.coordinates.toInt()
    glyph.recalcBounds(table)
    font["hmtx"][name] = (width, glyph.xMin)


if __name__ == "__main__":
    typer.run(main)
