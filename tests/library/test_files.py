"""Files are written whole or not at all, and say what they were made with."""

import json
import os
import platform
from importlib.metadata import version

import pytest

from attnlib import files, provenance


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "new" / "file.json"
    files.replace(path, b"one")
    files.replace(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
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


def test_two_writers_of_one_file_do_not_share_a_part(tmp_path, monkeypatch):
    path, parts = tmp_path / "file", []
    really = os.fsync

    def seen(descriptor):
        parts.append([name for name in os.listdir(tmp_path) if name.endswith(".part")])
        really(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    for _ in range(2):
        files.replace(path, b"x")
    assert len({name for names in parts for name in names}) == 2


def test_json_has_a_line_for_each_key_and_each_entry(tmp_path):
    table = {"a": {"x": 1.5}, "entries": [{"n": 1}, {"n": 2}], "list": [1, 2], "none": []}
    files.write_json(tmp_path / "t.json", table)
    text = (tmp_path / "t.json").read_text("utf-8")
    assert json.loads(text) == table
    assert text.splitlines() == [
        *("{", '"a": {"x": 1.5},', '"entries": [', '{"n": 1},', '{"n": 2}', "],"),
        *('"list": [1, 2],', '"none": []', "}"),
    ]


def test_versions_are_those_that_are_installed():
    assert provenance.versions("numpy", "scipy") == {
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
    }
    assert provenance.processor()
