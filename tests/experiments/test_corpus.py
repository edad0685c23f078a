"""The corpus of Python: which files it takes, in which order, and that it is the one it says."""

import bz2
import hashlib
import json
from importlib.metadata import Distribution, PackageNotFoundError

import pytest

from experiments.lab import corpus, data


def package(folder, name, files, tag="py3-none-any"):
    """Install a package of these files."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (about / "WHEEL").write_text(f"Tag: {tag}\n")
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(text)
    (about / "RECORD").write_text("".join(f"{path},,\n" for path in reversed(files)))
    return Distribution.at(about)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two packages to train on, and one to validate with."""
    monkeypatch.setattr(corpus, "MANIFEST", tmp_path / "corpus.json")
    monkeypatch.setattr(corpus, "PACKED", tmp_path / "corpus.bz2")
    monkeypatch.setattr(corpus, "PINS", tmp_path / "requirements.txt")
    monkeypatch.setattr(corpus, "VALIDATION", ("second",))
    shared = b"# the same in both\n"
    found = {
        "first": {"first/b.py": b"b" * 50, "first/a.py": b"a" * 50, "first/c.py": shared},
        "Second": {"second/a.py": b"v" * 12, "second/b.py": shared, "second/data.csv": b"no"},
        "third": {"third/a.py": b"t" * 40, "../bin/tool.py": b"no"},
    }
    made = {name: package(tmp_path, name, files) for name, files in found.items()}
    made["wheels"] = package(tmp_path, "wheels", {"wheels/a.py": b"no"}, tag="cp311-linux")
    corpus.PINS.write_text("-e .\nwheels==2.0\n" + "".join(f"{n}==1.0\n" for n in list(made)[:3]))

    def distribution(name):
        if name not in made:
            raise PackageNotFoundError(name)
        return made[name]

    monkeypatch.setattr(corpus, "distribution", distribution)
    return made


def test_a_pack_is_the_text_in_the_same_bytes(packages):
    corpus.write_manifest()
    assert json.loads(corpus.MANIFEST.read_text())["sha256"] == corpus.sha256()
    text = corpus.load()
    first = corpus.pack().read_bytes()
    assert corpus.pack().read_bytes() == first
    packages.clear()  # a machine without them
    assert corpus.load() == text
    assert hashlib.sha256(data.load("python")).hexdigest() == data.sha256("python")
    corpus.PACKED.write_bytes(bz2.compress(text + b"more"))
    with pytest.raises(ValueError, match=r"corpus.bz2 is not the corpus of corpus.json"):
        corpus.load()


def test_what_is_not_as_pinned_is_named(packages, tmp_path):
    corpus.write_manifest()
    (tmp_path / "first" / "a.py").write_bytes(b"changed")
    with pytest.raises(ValueError, match="what is installed is not the corpus"):
        corpus.pack()
    pins = corpus.PINS.read_text()
    corpus.PINS.write_text(pins.replace("third==1.0", "third==1.1"))
    with pytest.raises(ValueError, match=r"needs third==1.1, and 1.0 is there; install requirem"):
        corpus.load()
    packages.pop("first")
    with pytest.raises(ValueError, match=r"needs first==1.0, which is missing; install requirem"):
        corpus.load()


def test_the_manifest_is_that_of_what_is_installed():
    """After a change of pins, `corpus.write_manifest()` writes it anew."""
    text, manifest = corpus.build(corpus.pinned())
    assert manifest == json.loads(corpus.MANIFEST.read_text("utf-8"))
    assert len(text) <= 120e6
    validating = [one["name"].lower() for one in manifest["packages"] if one["part"] != "training"]
    assert sorted(validating) == sorted(corpus.VALIDATION)
