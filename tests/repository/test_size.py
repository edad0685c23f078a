"""How much a clone fetches and keeps."""

import subprocess

import pytest

from tests.books import ROOT

LIMIT = 40e6


def git(*arguments, given=b""):
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, check=True).stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_a_clone_stays_under_forty_megabytes():
    """With its history packed anew: how well it lies on a disk depends on how it came there."""
    options = ("--revs", "--stdout", "--no-reuse-delta", "--threads=1", "--quiet")
    history = len(git("pack-objects", *options, given=b"HEAD\n"))
    names = git("ls-files", "-z").decode().split("\0")
    sizes = {name: (ROOT / name).stat().st_size for name in names if name}
    assert sum(sizes.values()) > 1e6
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:10]
    told = "; ".join(f"{name} {size / 1e6:.2f}" for name, size in largest)
    megabytes = (history + sum(sizes.values())) / 1e6
    assert megabytes < LIMIT / 1e6, f"{megabytes:.1f} MB: history {history / 1e6:.2f}; {told}"
