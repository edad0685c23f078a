"""The workflows on GitHub: what can be known of them without running there."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.books import ROOT
from tests.processors import SETTINGS
from tests.repository.packages import PROJECT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
MAY_WRITE = {
    ("publish", "deploy"): {"pages", "id-token"},
    ("publish", "launch"): {"contents"},
    ("release", "release"): {"contents"},
}
workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path):
    return yaml.safe_load(path.read_text("utf-8"))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_there_are_workflows_to_look_at():
    names = {"test", "publish", "release", "canary", "links", "processors"}
    assert {path.stem for path in WORKFLOWS} == names


def test_every_setting_of_a_processor_has_its_weekly_job():
    [job] = read(ROOT / ".github" / "workflows" / "processors.yml")["jobs"].values()
    assert ["here", *job["strategy"]["matrix"]["setting"]] == list(SETTINGS)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_the_files_are_what_their_readers_expect(schema, files):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    found = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


@workflows
def test_actions_are_pinned_by_commit_with_their_version_beside_it(path):
    used = re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text("utf-8"), re.MULTILINE)
    assert used
    for action in used:
        assert action.startswith("./.github/workflows/") or PINNED.fullmatch(action), action


def test_an_action_has_one_version():
    text = "".join(path.read_text("utf-8") for path in WORKFLOWS)
    used = set(re.findall(r"uses: (.*@.*)", text))
    assert len({line.split("@")[0] for line in used}) == len(used)


@workflows
def test_permissions_are_few(path):
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        granted = job.get("permissions", {})
        written = {scope for scope, access in granted.items() if access != "read"}
        assert written <= MAY_WRITE.get((path.stem, name), set()), name


@workflows
def test_jobs_end_and_do_not_pile_up(path):
    workflow = read(path)
    assert "group" in workflow["concurrency"]
    for name, job in workflow["jobs"].items():
        assert "uses" in job or 0 < job["timeout-minutes"] <= 60, name


@workflows
def test_the_token_stays_in_the_job_that_pushes(path):
    for name, job in read(path)["jobs"].items():
        for step in job.get("steps", []):
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is (name == "launch")


@workflows
def test_nothing_from_outside_is_pasted_into_a_shell(path):
    for step in steps(read(path)):
        assert "${{" not in step.get("run", "")


@workflows
def test_caches_are_keyed_by_the_pins(path):
    for step in steps(read(path)):
        if "cache" in step.get("with", {}):
            assert step["with"]["cache-dependency-path"] == "requirements.txt"
            assert path.stem not in {"publish", "release"}


def test_every_supported_version_of_python_is_tested():
    listed = [line for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    versions = [line.split(" :: ")[-1] for line in listed]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    jobs = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"]
    assert len(jobs) == 2
    for job in jobs.values():
        assert job["strategy"]["matrix"]["python"] == versions
        assert job["strategy"]["fail-fast"] is False


def test_a_name_is_looked_up_in_one_index():
    set_up = ROOT / "install.py"
    lists = [ROOT / "requirements.txt", *(ROOT / ".binder").iterdir()]
    for path in [*WORKFLOWS, *lists, set_up]:
        text = path.read_text("utf-8")
        assert not re.search(r"extra[-_]index|find-links", text, re.IGNORECASE), path
        others = "--index-url" in text or "INDEX_URL" in text
        assert others is (path == set_up), path
    assert 'ran(*quietly, "--no-deps", *WITHOUT_CUDA, torch[0])' in set_up.read_text("utf-8")


def test_every_set_up_is_the_same():
    calls = {
        "Makefile": "$(BIN)/python install.py\n",
        "README.md": ".venv/bin/python install.py ",
        ".binder/postBuild": "python install.py .binder/pins.txt\n",
        ".github/workflows/test.yml": "python install.py\n",
    }
    for name, call in calls.items():
        text = (ROOT / name).read_text("utf-8")
        assert call in text, name
        assert "install -r " not in text


def test_a_release_has_a_bill_of_materials_made_by_a_pinned_tool():
    job = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["release"]
    assert job["needs"] == "test"
    commands = "\n".join(step.get("run", "") for step in job["steps"])
    assert re.search(r"pip install cyclonedx-bom==\d+\.\d+\.\d+\n", commands)
    order = ["hatchling build", "--output-file dist/attnlib.cdx.json", "gh release create"]
    assert sorted(order, key=commands.index) == order


def test_nothing_is_published_that_did_not_pass():
    jobs = read(ROOT / ".github" / "workflows" / "publish.yml")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert jobs["build"]["needs"] == "test"
    assert jobs["launch"]["needs"] == "build"
    assert jobs["deploy"]["needs"] == ["build", "launch"]
    assert all("if" not in job for job in jobs.values())


def test_commands_are_those_of_the_readme_and_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    ours = "|".join(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for path in WORKFLOWS:
        for step in steps(read(path)):
            for command in re.findall(r"^make (.*)$", step.get("run", ""), re.MULTILINE):
                assert re.fullmatch(rf"(?:(?:{ours}) ?)+", command), command
            for module in re.findall(r"python\S* -m (book\.\S+)", step.get("run", "")):
                assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), module
