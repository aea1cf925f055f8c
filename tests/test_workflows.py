"""The workflows: they can be read, their commands are make targets or scripts that are there."""

import re
import subprocess
from typing import Any

import pytest
import yaml
from repository import ROOT, run

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)  # "on" stays a word
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_a_reader_can_run(path: Any) -> None:
    workflow = load(path.name)
    assert set(workflow) >= {"name", "on", "jobs"}
    targets = set(re.findall(r"^  make ([a-z-]+)", run("make", "help"), re.M))
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["steps"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@(release/)?v\d+", step["uses"]), step["uses"]
                continue
            done = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True)
            assert done.returncode == 0, done.stderr
            assert set(re.findall(r"^make ([a-z-]+)", step["run"], re.M)) <= targets
            for script in re.findall(r"(?:^|\s)(\.ci/\w+|tools/\w+\.py)", step["run"]):
                assert (ROOT / script).exists(), script
            if "| tee" in step["run"]:
                assert step.get("shell") == "bash", "without pipefail a failure is lost in tee"


def test_newest_versions_are_tried_every_week_and_reported() -> None:
    workflow = load("newest.yml")
    [schedule] = workflow["on"]["schedule"]
    minute, hour, day, month, weekday = schedule["cron"].split()
    assert (
        (day, month) == ("*", "*") and weekday in "0123456" and minute.isdigit() and hour.isdigit()
    )
    assert workflow["permissions"] == {"contents": "read", "issues": "write"}
    steps = workflow["jobs"]["newest"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands[0] == "make requirements", "every pin is renewed first"
    assert commands[1].startswith(".ci/run "), "then all that make test runs"
    report = next(step for step in steps if step.get("name") == "Report")
    assert report["if"] == "always()"
    assert "gh issue create" in report["run"] and "gh issue comment" in report["run"]


def test_a_tag_is_checked_built_tested_and_published_without_a_password() -> None:
    workflow = load("release.yml")
    assert workflow["on"] == {"push": {"tags": ["v*"]}}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    order = ["check_release.py", "make env", "hatchling build -d dist", "KVLIB_DIST=dist"]
    assert [word for word, command in zip(order, commands, strict=True) if word in command] == order
    assert workflow["permissions"] == {"contents": "read"} and "permissions" not in build
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}
    used = [step["uses"] for step in publish["steps"]]
    assert used[-1].startswith("pypa/gh-action-pypi-publish@")
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text and "password:" not in text


def test_what_make_test_samples_runs_whole_every_week() -> None:
    workflow = load("weekly.yml")
    assert workflow["on"]["schedule"], "it runs by itself"
    job = workflow["jobs"]["weekly"]
    runs = {part["name"]: part for part in job["strategy"]["matrix"]["include"]}
    assert runs["whole"]["command"] == ".ci/run" and runs["whole"]["tests"] == "whole"
    assert runs["portable"]["command"] == "make portable"
    assert {part["python"] for part in runs.values()} >= {"3.11", "3.12", "3.13", "3.14"}
    oldest = runs["oldest dependencies"]["command"]
    assert oldest == "make requirements UPGRADE=oldest && .ci/run"
    steps = [step.get("run", "") for step in job["steps"]]
    clang = next(
        i for i, step in enumerate(steps) if re.search(r"apt-get install .*\bclang$", step, re.M)
    )
    command = steps.index("( ${{ matrix.command }} ) 2>&1 | tee weekly.log")
    assert clang < command, "clang comes first"
    assert job["env"]["KVLIB_TESTS"] == "${{ matrix.tests }}"
    assert any(step.get("if") == "failure()" for step in job["steps"]), "a failure is told"
