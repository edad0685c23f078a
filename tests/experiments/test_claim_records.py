"""What the claims on training and on heads rest on is what is recorded."""

from experiments import claim_records


def test_the_file_in_the_library_is_what_the_recorded_runs_give():
    assert claim_records.OUT.read_text("utf-8") == claim_records.content()


def test_the_heads_in_the_library_are_those_that_are_recorded():
    assert claim_records.OUT_HEADS.read_text("utf-8") == claim_records.heads_content()
