"""What is joined into one style sheet and one script still means what its parts meant."""

from types import SimpleNamespace

import pytest

from book.extensions import live, weight

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt" viewBox="0 0 72 36">'


@pytest.fixture
def out(tmp_path):
    """Return a function that writes a file of a site, and gives the site's folder."""

    def out(name="", text=""):
        if name:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return out


ASKED = '<script defer src="../_static/live.js"></script>'


def figure(name):
    return f'<figure id="{name}"><img src="a.svg" /><figcaption>b</figcaption></figure>'


def test_a_script_moves_behind_the_still_of_its_first_figure():
    others, own, more = figure("fig-x"), figure("fig-live-freezing"), figure("fig-freezing-contest")
    found = live.in_figures(others + own + ASKED + more)
    script = '<script src="../_static/live.js"></script>\n'
    inside = own.replace("<figcaption>", f"{script}<figcaption>")
    assert found == others + inside + more


@pytest.mark.parametrize("script", ["live", "ledger"])
def test_a_script_without_a_figure_stays(script):
    body = figure("fig-x") + ASKED.replace("live.js", f"{script}.js")
    assert live.in_figures(body) == body


def test_addresses_in_a_joined_style_lead_where_they_led(out):
    out("_static/deep/part.css", "b { background: url('../pic.svg') } i { src: url(#x) }")
    out("_static/deep/one.css", '@import "part.css"; a { background: url(near.svg) }')
    joined = weight.style(out(), "_static/deep/one.css")
    assert 'url("pic.svg")' in joined
    assert 'url("deep/near.svg")' in joined
    assert "url(#x)" in joined
    assert "@import" not in joined


def test_what_is_neither_light_nor_dark_is_light(out):
    out("_static/a.css", "html[data-theme=light] a{b}html[data-theme='light'] c{d}")
    light = 'html:not([data-theme="dark"])'
    assert weight.style(out(), "_static/a.css") == f"{light} a{{b}}{light} c{{d}}"


def test_a_font_becomes_part_of_the_style(out):
    out("_static/fonts/a.woff2", "font")
    out("_static/a.css", "@font-face { src: url(fonts/a.woff2) }")
    assert 'url("data:font/woff2;base64,Zm9udA==")' in weight.style(out(), "_static/a.css")


def test_font_awesome_is_left_out_of_the_theme_and_of_nothing_else(out):
    text = (
        '@font-face{font-family:"Font Awesome 6 Free";src:url(fa.woff2)}'
        ".fa-bars:before{content:x}:host,:root{--fa-style:y}.fast{color:red}p{color:blue}"
    )
    out("_static/other.css", text.replace("src:url(fa.woff2)", ""))
    out(weight.FIRST_STYLES[1], text)
    assert weight.style(out(), weight.FIRST_STYLES[1]) == ".fast{color:red}p{color:blue}"
    assert "fa-bars" in weight.style(out(), "_static/other.css")


def test_a_joined_script_does_not_set_the_mode_of_the_next_and_ends_before_it(out):
    out("_static/a.js", '"use strict";\nlet a = 1\n//# sourceMappingURL=a.js.map\n')
    out("_static/b.js", "(function () { b = 2 })()")
    name = weight.written(out(), "js", ("_static/a.js", "_static/b.js"))
    text = (out() / name).read_text(encoding="utf-8")
    assert text.startswith(';"use strict"')
    assert "let a = 1\n\n\n;(function" in text
    assert "sourceMappingURL" not in text


def test_the_name_of_a_joined_file_says_what_is_in_it(out):
    names = set()
    for body in ("p { }", "p { }", "b { }"):
        out("_static/a.css", body)
        weight.JOINED.clear()
        names.add(weight.written(out(), "css", ("_static/a.css",)))
    assert len(names) == 2


@pytest.mark.parametrize(
    ("tag", "sized"),
    [
        ('<img alt="a" src="../p.svg">', ' width="96" height="48"'),
        ('<img src="../p.svg" width="5">', ""),
        ('<img src="../none.svg">', ""),
        ('<img src="https://example.org/q.svg">', ""),
    ],
)
def test_pictures_have_their_natural_size_unless_it_is_said(out, tag, sized):
    out("p.svg", SVG)
    files = {"p.svg": out() / "p.svg"}
    assert weight.with_sizes(tag, files) == tag.replace(">", f"{sized}>")


def test_all_pictures_but_the_first_wait_till_they_are_near():
    body = '<img src="a.png"><img src="b.png"/><img loading="eager" src="c.png">'
    expected = '<img src="a.png"><img src="b.png" loading="lazy"/><img loading="eager" src="c.png">'
    assert weight.with_sizes(body, {}) == expected


def test_size_in_points_or_pixels_or_not_said(out):
    for name, tag, size in [
        ("a.svg", SVG, (96, 48)),
        ("b.svg", '<svg width="10" height="20px">', (10, 20)),
        ("c.svg", '<svg width="100%" height="20">', None),
        ("d.svg", "no picture", None),
    ]:
        assert weight.natural(out(name, tag) / name) == size


def test_late_files_are_brought_once_for_a_build(out, monkeypatch):
    called, coloured = [], []
    monkeypatch.setattr(weight, "overwrite_pygments_css", coloured.append)

    def late(app, error):
        called.append(error)

    def other(app, error):
        raise AssertionError

    late.__module__, other.__module__ = "sphinx_proof", "book.extensions.live"
    listeners = [SimpleNamespace(handler=one) for one in (late, other)]
    events = SimpleNamespace(listeners={"build-finished": listeners})
    app = SimpleNamespace(outdir=out(), events=events)
    weight.bring(app)
    weight.bring(app)
    assert called == [None]
    assert coloured == [app]
