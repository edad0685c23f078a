"""What is joined into one style sheet, or moved within a page, still means what it meant."""

import pytest

from book.extensions import live, weight

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt" viewBox="0 0 72 36">'
ASKED = '<script defer src="../_static/live.js"></script>'


def figure(name):
    return f'<figure id="{name}"><img src="a.svg" /><figcaption>b</figcaption></figure>'


def test_a_script_moves_behind_the_still_of_its_first_figure():
    others, own, more = figure("fig-x"), figure("fig-live-freezing"), figure("fig-freezing-contest")
    found = live.in_figures(others + own + ASKED + more)
    script = '<script src="../_static/live.js"></script>\n'
    assert found == others + own.replace("<figcaption>", f"{script}<figcaption>") + more


def test_addresses_and_fonts_of_a_joined_style_lead_where_they_led(tmp_path):
    for name, text in {
        "part.css": "b { background: url('../pic.svg') } i { src: url(#x) }",
        "one.css": '@import "part.css"; a { background: url(near.svg); src: url(a.woff2) }',
        "a.woff2": "font",
    }.items():
        path = tmp_path / "_static" / "deep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    joined = weight.style(tmp_path, "_static/deep/one.css")
    for part in ("pic.svg", "deep/near.svg", "data:font/woff2;base64,Zm9udA=="):
        assert f'url("{part}")' in joined
    assert "url(#x)" in joined
    assert "@import" not in joined


@pytest.mark.parametrize(
    ("tag", "sized"),
    [
        ('<img alt="a" src="../p.svg">', ' width="96" height="48"'),
        ('<img src="../p.svg" width="5">', ""),
        ('<img src="https://example.org/q.svg">', ""),
    ],
)
def test_pictures_have_their_natural_size_unless_it_is_said(tmp_path, tag, sized):
    (tmp_path / "p.svg").write_text(SVG, encoding="utf-8")
    late = tag.replace(">", f'{sized} loading="lazy">')
    found = weight.with_sizes(f'<img src="a.png">{tag}', {"p.svg": tmp_path / "p.svg"})
    assert found == f'<img src="a.png">{late}'
