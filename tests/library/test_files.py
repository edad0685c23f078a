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


def test_a_file_that_cannot_be_begun_says_why(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "open", refused)
    with pytest.raises(PermissionError, match="Permission denied"):
        files.replace(tmp_path / "file", b"x")


def test_a_list_of_tables_and_others_is_one_line(tmp_path):
    files.write_json(tmp_path / "t.json", {"mixed": [{"n": 1}, 2]})
    assert (tmp_path / "t.json").read_text("utf-8") == '{\n"mixed": [{"n": 1}, 2]\n}\n'


def test_all_missing_folders_are_made(tmp_path):
    files.replace(tmp_path / "one" / "two" / "file", b"x")
    assert (tmp_path / "one" / "two" / "file").read_bytes() == b"x"


def test_what_is_made_safe_is_the_whole_file(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    files.replace(tmp_path / "file", b"content")
    assert sizes == [7]


def test_a_processor_without_a_name_is_told_by_its_kind(tmp_path, monkeypatch):
    listed = tmp_path / "cpuinfo"
    monkeypatch.setattr(provenance, "Path", lambda _: listed)
    monkeypatch.setattr(platform, "machine", lambda: "riscv")
    for said, expected in (("", "riscv"), ("a chip", "a chip")):
        monkeypatch.setattr(platform, "processor", lambda said=said: said)
        assert provenance.processor() == expected
    listed.write_text("flags : a b\nmodel name\t: One 3000\nmodel name\t: Two\n", "utf-8")
    assert provenance.processor() == "One 3000"
