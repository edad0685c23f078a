"""The workflows on GitHub: what can be known of them without running there."""

import re

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tests.paths import ROOT
from tests.repository.packages import PROJECT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in FOLDER.glob("*.yml")}


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", sorted(FOLDER.glob("*.yml"))),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_the_files_are_what_their_readers_expect(schema, files):
    arguments = ["--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = CliRunner().invoke(check_jsonschema.main, arguments)
    assert done.exit_code == 0, done.output


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


def test_nothing_is_published_that_did_not_pass():
    jobs = WORKFLOWS["publish"]["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert [jobs[name]["needs"] for name in ("build", "deploy")] == ["test", "build"]
    assert all("if" not in job for job in jobs.values())
