"""How much a clone fetches and keeps."""

import subprocess

import pytest

from tests.books import ROOT


def git(*arguments):
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_a_clone_stays_under_twenty_megabytes():
    history = int(git("rev-list", "--disk-usage", "--objects", "HEAD"))
    files = sum((ROOT / name).stat().st_size for name in git("ls-files", "-z").split("\0") if name)
    assert files > 1e6
    assert history + files < 20e6
