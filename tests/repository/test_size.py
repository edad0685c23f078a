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
    options = ("--revs", "--stdout", "--threads=1", "--quiet")
    names = git("ls-files", "-z").decode().split("\0")
    sizes = {name: (ROOT / name).stat().st_size for name in names if name}
    assert sum(sizes.values()) > 1e6
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:10]
    told = "; ".join(f"{name} {size / 1e6:.2f}" for name, size in largest)
    # How well it lies on a disk depends on how it came there: if too badly, it is packed anew.
    for more in ((), ("--no-reuse-delta",)):
        history = len(git("pack-objects", *options, *more, given=b"HEAD\n"))
        megabytes = (history + sum(sizes.values())) / 1e6
        if megabytes < LIMIT / 1e6:
            return
    pytest.fail(f"{megabytes:.1f} MB: history {history / 1e6:.2f}; {told}")
