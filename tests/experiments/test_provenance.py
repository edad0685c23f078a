"""What a record says that it was made with."""

import shutil
import subprocess

import pytest

from experiments import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return the root of a copy of nothing but the package's folder, and forget the real commit."""
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "attnlib" / "provenance.py"))
    (tmp_path / "attnlib").mkdir()
    provenance.commit.cache_clear()
    yield tmp_path
    provenance.commit.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_a_checkout_says_whether_code_has_changed(checkout, monkeypatch):
    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        command = ["git", "-C", checkout, *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert provenance.commit() is None  # there is no checkout
    git("init", "-q")
    provenance.commit.cache_clear()
    assert provenance.commit() is None  # there is none yet
    for name in ("code.py", "record.json"):
        (checkout / name).write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    (checkout / "record.json").write_text("2")
    for changed, expected in (("1", head), ("2", f"{head}-dirty")):
        (checkout / "code.py").write_text(changed)
        provenance.commit.cache_clear()
        assert provenance.commit() == expected
    monkeypatch.setenv("PATH", str(checkout))  # without git no commit is known
    provenance.commit.cache_clear()
    assert provenance.commit() is None
