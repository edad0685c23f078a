"""The corpus of Python: which files it takes, in which order, and that it is the one it says."""

import json

from experiments.lab import corpus


def test_the_manifest_is_that_of_what_is_installed():
    """After a change of pins, `corpus.write_manifest()` writes it anew."""
    text, manifest = corpus.build(corpus.pinned())
    assert manifest == json.loads(corpus.MANIFEST.read_text("utf-8"))
    assert len(text) <= 120e6
    validating = [one["name"].lower() for one in manifest["packages"] if one["part"] != "training"]
    assert sorted(validating) == sorted(corpus.VALIDATION)
