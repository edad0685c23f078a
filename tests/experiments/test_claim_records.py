"""What the claims on training rest on is what the recorded runs say."""

from experiments import claim_records


def test_the_file_in_the_library_is_what_the_recorded_runs_give():
    assert claim_records.OUT.read_text("utf-8") == claim_records.content()
