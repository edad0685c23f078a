"""Numbers for the text, as myst_nb expects them."""

import pytest
from myst_nb.ext.glue import glue as paste

from book import values


@pytest.mark.parametrize("text", ["0.50 ± 0.01", "it's", "2⁻¹⁰"])
def test_a_glued_value_is_what_myst_nb_glues(text, monkeypatch):
    displayed = []
    for module, name in (("myst_nb.ext.glue", "ipy_display"), ("book.values", "display")):
        record = lambda content, **options: displayed.append((content, options))  # noqa: E731
        monkeypatch.setattr(f"{module}.{name}", record)
    monkeypatch.setattr(values, "get_ipython", object)
    paste("half", text, display=False)
    values.glue("half", text)
    expected, found = displayed
    assert found == expected
