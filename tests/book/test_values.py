"""Numbers of a chapter: glued into its text, and in tables."""

import book
from book.values import Link, Table


def test_glue_formats_and_prints_outside_the_book(capsys):
    book.glue("half", 0.5, ".2f")
    book.glue("name", "text")
    assert capsys.readouterr().out == "half = 0.50\nname = text\n"


def filled():
    table = Table("rule", "n", "α", caption="Some & others")
    table.row("1/√d <1>", 4, "1.00 ± 0.02")
    table.row("μP", 4096, "—")
    return table


def test_as_text_its_columns_are_aligned():
    assert repr(filled()).splitlines() == [
        "Some & others",
        "rule         n            α",
        "1/√d <1>     4  1.00 ± 0.02",
        "μP        4096            —",
    ]


def test_as_html_it_is_a_table_with_headings_and_numbers_flush_right():
    html = filled()._repr_html_()
    assert "<caption>Some &amp; others</caption>" in html
    assert '<th scope="col">rule</th><th scope="col" class="number">n</th>' in html
    assert '<td>1/√d &lt;1&gt;</td><td class="number">4</td>' in html
    assert html.count("<tr>") == html.count("</tr>") == 3


def test_a_link_is_one_in_html_and_its_text_elsewhere():
    table = Table("bug", "n")
    table.row(Link("a <b>", "https://example.org/?a=1&b=2"), 4)
    assert repr(table).splitlines() == ["bug    n", "a <b>  4"]
    link = '<a href="https://example.org/?a=1&amp;b=2">a &lt;b&gt;</a>'
    assert f"<td>{link}</td>" in table._repr_html_()
