"""Files are written whole or not at all, and say what they were made with."""

import json
import os
import shutil
import subprocess
from importlib.metadata import version

import pytest

import attnlib
from experiments import files, provenance


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path, monkeypatch):
    path, seen = tmp_path / "one" / "two" / "file.json", []
    files.replace(path, b"one")
    monkeypatch.setattr(
        *(os, "fsync"),
        lambda file: seen.append((os.fstat(file).st_size, tuple(os.listdir(path.parent)))),
    )
    for _ in range(2):
        files.replace(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]
    assert [size for size, _ in seen] == [3, 3]
    parts = {name for _, names in seen for name in names if name.endswith(".part")}
    assert len(parts) == 2  # two writers of one file do not share a part


@pytest.mark.parametrize("fails", ["fsync", "replace", "open"])
def test_when_it_fails_the_old_file_stays_and_no_part_of_the_new_one(tmp_path, monkeypatch, fails):
    path = tmp_path / "file.json"
    files.replace(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if fails == "fsync" else type(path), fails, full)
    with pytest.raises(OSError, match="No space left"):
        files.replace(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_has_a_line_for_each_key_and_each_entry(tmp_path):
    table = {"a": {"x": 1.5}, "entries": [{"n": 1}, {"n": 2}], "mixed": [{"n": 1}, 2], "none": []}
    files.write_json(tmp_path / "t.json", table)
    assert json.loads((tmp_path / "t.json").read_text("utf-8")) == table
    assert (tmp_path / "t.json").read_text("utf-8").splitlines() == [
        *("{", '"a": {"x": 1.5},', '"entries": [', '{"n": 1},', '{"n": 2}', "],"),
        *('"mixed": [{"n": 1}, 2],', '"none": []', "}"),
    ]


def test_what_is_not_finite_is_not_written(tmp_path):
    path = tmp_path / "t.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"loss": float("nan")})
    assert not path.exists()


# --- provenance ----------------------------------------------------------------------------------


def test_what_a_record_is_made_with():
    made = provenance.made("numpy", threads=2)
    assert (made["attnlib"], made["numpy"]) == (attnlib.__version__, version("numpy"))
    assert made["processor"] == provenance.processor() != ""
    assert provenance.made(threads=1, on="another")["processor"] == "another"


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
