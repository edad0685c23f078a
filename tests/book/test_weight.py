"""What is joined into one style sheet and one script still means what its parts meant."""

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


def test_addresses_in_a_joined_style_lead_where_they_led(out):
    out("_static/deep/part.css", "b { background: url('../pic.svg') } i { src: url(#x) }")
    out("_static/deep/one.css", '@import "part.css"; a { background: url(near.svg) }')
    joined = weight.style(out(), "_static/deep/one.css")
    assert 'url("pic.svg")' in joined
    assert 'url("deep/near.svg")' in joined
    assert "url(#x)" in joined
    assert "@import" not in joined


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
    late = tag.replace(">", f'{sized} loading="lazy">')
    assert weight.with_sizes(f'<img src="a.png">{tag}', files) == f'<img src="a.png">{late}'
