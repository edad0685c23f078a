"""The workflows on GitHub: what can be known of them without running there."""

import re

import pytest
import yaml

from tests.paths import ROOT
from tests.repository.packages import PROJECT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in FOLDER.glob("*.yml")}


@pytest.mark.parametrize("name", ["CITATION.cff", "README.md", "pyproject.toml"])
def test_who_publishes_finds_one_version(name):
    text = (ROOT / name).read_text("utf-8")
    stated = re.findall(r"""(?<!-)version"?(?: = |: )\W?(\d+\.\d+\.\d+)""", text)
    assert stated == [PROJECT["version"]]


def test_every_supported_version_of_python_is_tested():
    listed = [line for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    versions = [line.split(" :: ")[-1] for line in listed]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    for job in WORKFLOWS["test"]["jobs"].values():
        assert job["strategy"]["matrix"]["python"] == versions
