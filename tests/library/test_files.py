"""Files are written whole or not at all."""

import os

import pytest

from attnlib import _files


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path, monkeypatch):
    path, seen = tmp_path / "one" / "two" / "file.json", []
    _files.replace(path, b"one")
    monkeypatch.setattr(
        *(os, "fsync"),
        lambda file: seen.append((os.fstat(file).st_size, tuple(os.listdir(path.parent)))),
    )
    for _ in range(2):
        _files.replace(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]
    assert [size for size, _ in seen] == [3, 3]
    parts = {name for _, names in seen for name in names if name.endswith(".part")}
    assert len(parts) == 2  # two writers of one file do not share a part


@pytest.mark.parametrize("fails", ["fsync", "replace", "open"])
def test_when_it_fails_the_old_file_stays_and_no_part_of_the_new_one(tmp_path, monkeypatch, fails):
    path = tmp_path / "file.json"
    _files.replace(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if fails == "fsync" else type(path), fails, full)
    with pytest.raises(OSError, match="No space left"):
        _files.replace(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
