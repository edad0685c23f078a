"""The workflows on GitHub: what can be known of them without running there."""

import re

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tests.books import ROOT
from tests.processors import SETTINGS
from tests.repository.packages import PROJECT

FOLDER = ROOT / ".github" / "workflows"
TEXTS = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.yml"))}
WORKFLOWS = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
JOBS = {
    (name, job): WORKFLOWS[name]["jobs"][job] for name in TEXTS for job in WORKFLOWS[name]["jobs"]
}
STEPS = [(*place, step) for place, job in JOBS.items() for step in job.get("steps", [])]
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
MAY_WRITE = {
    ("publish", "deploy"): {"pages", "id-token"},
    ("release", "release"): {"contents"},
}


def test_there_are_the_workflows_that_contributing_lists():
    listed = re.findall(
        r"^\| `(\w+)` \|", (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    assert TEXTS.keys() == set(listed)


def test_every_setting_of_a_processor_has_its_weekly_job():
    job = JOBS["processors", "kernels"]
    assert ["here", *job["strategy"]["matrix"]["setting"]] == list(SETTINGS)


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
    said = re.findall(r"""(?<!-)version"?(?: = |: )\W?(\d+\.\d+\.\d+)""", text)
    assert said == [PROJECT["version"]]


def test_actions_are_pinned_by_commit_and_have_one_version():
    used = set(re.findall(r"^ *(?:- )?uses: (.*)$", "\n".join(TEXTS.values()), re.MULTILINE))
    others = {action for action in used if not action.startswith("./.github/workflows/")}
    assert all(map(PINNED.fullmatch, others)), others
    assert len({action.split("@")[0] for action in others}) == len(others) > 0


def test_permissions_are_few_and_jobs_end():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] in ({}, {"contents": "read"})
        assert "group" in workflow["concurrency"], name
    for place, job in JOBS.items():
        written = {
            scope for scope, access in job.get("permissions", {}).items() if access != "read"
        }
        assert written <= MAY_WRITE.get(place, set()), place
        assert "uses" in job or 0 < job["timeout-minutes"] <= 120, place


def test_steps_keep_the_token_paste_nothing_into_a_shell_and_cache_by_the_pins():
    for workflow, _, step in STEPS:
        given = step.get("with", {})
        if "actions/checkout" in step.get("uses", ""):
            assert given["persist-credentials"] is False
        assert "${{" not in step.get("run", "")
        if "cache" in given:
            assert given["cache-dependency-path"] == "requirements.txt"
            assert workflow not in {"publish", "release"}


def test_every_supported_version_of_python_is_tested():
    listed = [line for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    versions = [line.split(" :: ")[-1] for line in listed]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    for job in WORKFLOWS["test"]["jobs"].values():
        assert job["strategy"]["matrix"]["python"] == versions
        assert job["strategy"]["fail-fast"] is False


def test_a_name_is_looked_up_in_one_index():
    set_up = ROOT / "install.py"
    lists = [ROOT / "requirements.txt", *(ROOT / ".binder").iterdir()]
    for path in [*FOLDER.iterdir(), *lists, set_up]:
        text = path.read_text("utf-8")
        assert not re.search(r"extra[-_]index|find-links", text, re.IGNORECASE), path
        others = "--index-url" in text or "INDEX_URL" in text
        assert others is (path == set_up), path
    assert '"--no-deps", *WITHOUT_CUDA, torch[0]' in set_up.read_text("utf-8")


def test_nothing_is_published_that_did_not_pass():
    jobs = WORKFLOWS["publish"]["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert [jobs[name]["needs"] for name in ("build", "deploy")] == ["test", "build"]
    assert all("if" not in job for job in jobs.values())
