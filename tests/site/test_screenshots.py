from matplotlib.image import imread

from book.browser import serve
from book.screenshots import TALLEST, photograph


def test_tall_page_is_cut_into_parts(browser, tmp_path):
    body = f'<div style="height: {TALLEST + 100}px; background: Canvas"></div>'
    html = f'<!DOCTYPE html><meta name="color-scheme" content="dark light">{body}'
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    with serve(tmp_path) as address:
        parts = list(photograph(browser, f"{address}/page.html", tmp_path / "page", 390, "dark"))
    assert [path.name for path in parts] == ["page-1.png", "page-2.png"]
    pictures = [imread(path) for path in parts]
    assert [picture.shape[1] for picture in pictures] == [390, 390]
    assert pictures[0].shape[0] == TALLEST
    assert pictures[0][100, 100, :3].max() < 0.2
