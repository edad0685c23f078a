"""How much a clone fetches and keeps."""

import subprocess

import pytest

from tests.books import ROOT


def git(*arguments, given=b""):
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, check=True).stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_a_clone_stays_under_twenty_megabytes():
    """With its history packed anew: how well it lies on a disk depends on how it came there."""
    options = ("--revs", "--stdout", "--no-reuse-delta", "--threads=1", "--quiet")
    history = len(git("pack-objects", *options, given=b"HEAD\n"))
    names = git("ls-files", "-z").decode().split("\0")
    files = sum((ROOT / name).stat().st_size for name in names if name)
    assert files > 1e6
    assert history + files < 20e6
