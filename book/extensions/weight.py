"""A Sphinx extension: a page loads one style sheet and one script, and no fonts of icons.

The theme and the extensions bring some twenty files, FontAwesome's 1.5 MB among them. Here they
are joined in their order, without FontAwesome, whose few icons static/icons.css draws. The font of
the formulas is part of the style sheet: nothing moves when it comes, and a page that is opened as a
file has it. Pictures are loaded when they come near, and have their place before.
"""

import posixpath
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from docutils import nodes
from pydata_sphinx_theme.pygments import overwrite_pygments_css
from sphinx.application import Sphinx

from experiments.files import replace

FIRST_STYLES = ("_static/styles/theme.css", "_static/styles/pydata-sphinx-theme.css")
LAST_SCRIPTS = ("_static/scripts/bootstrap.js", "_static/scripts/pydata-sphinx-theme.js")
"""What the theme's own template names."""

OPTIONS = "_static/documentation_options.js"
"""What the scripts within pages refer to, before others are loaded."""

URL = re.compile(r"""url\((["']?)(?!data:|[a-z]+:|/|#)([^"')]+)\1\)""")
IMPORT = re.compile(r'@import "([^"]+)";')
FONT_AWESOME = re.compile(
    r"@font-face\{[^{}]*(?:Font ?Awesome|FontAwesome)[^{}]*\}"
    r"|(?<=[{}/])\s*\.fa[bsr]?\b[^{}]*\{[^{}]*\}"
    r"|:host,:root\{--fa-[^{}]*\}"
)
LIGHT = re.compile(r"""html\[data-theme=(["']?)light\1\]""")
IMAGE = re.compile(r'<img(?![^>]*\bloading=)([^>]*?\bsrc="([^"]+)"[^>]*?)(\s*/?)>')


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_css_file("icons.css")
    # After all that add files to a page.
    app.connect("html-page-context", lighten, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def lighten(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Give a page one style sheet and one script, and sizes to its pictures."""
    if app.builder.name != "html":
        return
    out = Path(app.outdir)
    bring(app)
    styles = [str(one.filename) for one in context["css_files"]]
    scripts = [str(one.filename) for one in context["script_files"] if one.filename]
    kept = [one for one in context["script_files"] if not one.filename]
    bodies = {one.attributes.get("body"): one for one in kept}  # once each
    context["css_files"] = []
    context["script_files"] = list(bodies.values())
    context["site_options"] = (out / OPTIONS).read_text(encoding="utf-8")
    names = [name for name in dict.fromkeys((*scripts, *LAST_SCRIPTS)) if name != OPTIONS]
    context["site_style"] = written(out, "css", tuple(dict.fromkeys((*FIRST_STYLES, *styles))))
    context["site_script"] = written(out, "js", tuple(names))
    if "body" in context:
        # Pictures are copied into the site when the build ends.
        files = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
        context["body"] = with_sizes(context["body"], files)


LATE = {"myst_nb", "sphinx_exercise", "sphinx_proof"}
"""Extensions that write their style sheets when the build ends; here they are wanted before."""


def bring(app: Sphinx) -> None:
    """Let the late extensions write their files now, and the theme its colours of code."""
    if getattr(app, "book_files_brought", None) != app.outdir:
        overwrite_pygments_css(app)
        for listener in app.events.listeners["build-finished"]:
            if listener.handler.__module__.partition(".")[0] in LATE:
                listener.handler(app, None)
        app.book_files_brought = app.outdir  # type: ignore[attr-defined]


JOINED: dict[tuple[str, ...], str] = {}
"""The names of the joined files, by what they are made of, for a build."""


def written(out: Path, kind: str, names: tuple[str, ...]) -> str:
    """Write files as one into the site, and return its name, which depends on what is in it."""
    key = (str(out), *names)
    if key not in JOINED:
        join = style if kind == "css" else script
        text = "\n".join(join(out, name) for name in names)
        digest = sha256(text.encode()).hexdigest()[:8]
        JOINED[key] = f"_static/site-{digest}.{kind}"
        replace(out / JOINED[key], text.encode())
    return JOINED[key]


def script(out: Path, name: str) -> str:
    """Return a script as part of a longer one, in which it does not set the mode of the others."""
    text = (out / name).read_text(encoding="utf-8")
    return ";" + re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.MULTILINE)


def style(out: Path, name: str) -> str:
    """Return a style sheet as part of one in _static: addresses moved, no FontAwesome.

    The theme's colours come by a script; a page without scripts is light.
    """
    text = (out / name).read_text(encoding="utf-8")
    folder = posixpath.dirname(posixpath.relpath(name, "_static"))

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        if target.endswith(".woff2"):
            font = b64encode((out / "_static" / target).read_bytes()).decode()
            target = f"data:font/woff2;base64,{font}"
        return f'url("{target}")'

    def imported(found: re.Match[str]) -> str:
        return style(out, posixpath.normpath(posixpath.join("_static", folder, found[1])))

    if name == FIRST_STYLES[1]:
        text = FONT_AWESOME.sub("", text)
    text = LIGHT.sub('html:not([data-theme="dark"])', text)
    text = IMPORT.sub(imported, URL.sub(moved, text))
    return re.sub(r"/\*# sourceMappingURL=.*?\*/", "", text)


def with_sizes(body: str, files: Mapping[str, Path]) -> str:
    """Return a page in which pictures have sizes, and all but the first wait till they are near.

    `files` says where the picture of a name is.
    """
    first = True

    def sized(found: re.Match[str]) -> str:
        nonlocal first
        attributes = found[1]
        file = files.get(posixpath.basename(found[2]))
        size = natural(file) if file and file.suffix == ".svg" else None
        if size and not re.search(r"\b(?:width|height)=", attributes):
            attributes += f' width="{size[0]:.0f}" height="{size[1]:.0f}"'
        if not first:
            attributes += ' loading="lazy"'
        first = False
        return f"<img{attributes}{found[3]}>"

    return IMAGE.sub(sized, body)


def natural(file: Path) -> tuple[float, float] | None:
    """Return width and height of an SVG in CSS pixels, None where it does not say."""
    with file.open(encoding="utf-8") as stream:
        tag = re.search(r"<svg[^>]*>", stream.read(4000))
    found = re.findall(r'\b(width|height)="([\d.]+)(pt|px)?"', tag[0] if tag else "")
    sides = {side: float(number) * (4 / 3 if unit == "pt" else 1) for side, number, unit in found}
    return (sides["width"], sides["height"]) if len(sides) == 2 else None
