"""The frame: pins, commands, configuration, vendored files, licences."""

import hashlib
import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
import run_gpu
import vendor_assets
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository import ROOT, run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(name: str) -> list[Requirement]:
    """The requirements of a file, one a line, comments left out."""
    lines = (
        line.split("#")[0].strip()
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    )
    return [Requirement(line) for line in lines if line]


def test_every_requirement_is_pinned_to_one_version() -> None:
    for requirement in requirements("requirements.txt"):
        specifiers = list(requirement.specifier)
        assert [s.operator for s in specifiers] == ["=="], f"{requirement} is not one pin"
        assert not specifiers[0].version.endswith("*")


def test_pins_satisfy_what_was_asked_for() -> None:
    pins = {canonicalize_name(r.name): r for r in requirements("requirements.txt")}
    extras = PROJECT["optional-dependencies"]
    asked = [*requirements("requirements.in"), *map(Requirement, PROJECT["dependencies"])]
    for extra in ("book", "checkpoints", "gpu"):
        asked += map(Requirement, extras[extra])
    for requirement in asked:
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} has no pin: make requirements"
        version = next(iter(pin.specifier)).version
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {pin}"


def test_pins_are_closed_under_their_own_dependencies() -> None:
    """What is installed here came from the pins alone, and pip finds nothing missing."""
    run(sys.executable, "-m", "pip", "check", "--disable-pip-version-check")


def test_cupy_is_pinned_where_it_can_run_and_torch_is_not_pinned() -> None:
    pins = {canonicalize_name(r.name): r for r in requirements("requirements.txt")}
    marker = pins["cupy-cuda13x"].marker
    assert marker is not None
    linux = {"sys_platform": "linux", "platform_machine": "x86_64"}
    assert marker.evaluate(linux)
    assert not marker.evaluate({**linux, "sys_platform": "darwin"})
    assert not marker.evaluate({**linux, "platform_machine": "aarch64"})
    assert not {"torch", "transformers"} & set(pins)


def test_pins_name_no_place_to_fetch_from() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in text and "--index-url" not in text and "--find-links" not in text
    assert "To renew" in text.split("==")[0]


def test_help_lists_every_target_in_one_line() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared = re.search(r"^\.PHONY:(.*?[^\\])$", text, re.M | re.S)
    assert declared
    targets = set(declared.group(1).replace("\\", " ").split())
    listed = dict(re.findall(r"^  make ([a-z-]+)\s+(.+)$", run("make", "help"), re.M))
    assert set(listed) == targets
    defined = set(re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.M))
    assert defined == targets, "a target is defined and not declared, or the other way round"


@pytest.mark.parametrize("target", ["book", "test", "lab", "gpu", "test-peers", "bench", "train"])
def test_every_file_that_a_command_names_is_there(target: str) -> None:
    plan = run("make", "-n", target)
    for script in set(re.findall(r"\b(?:tools|tests|benchmarks)/[\w/]+\.py\b", plan)):
        assert (ROOT / script).exists(), f"make {target} would run {script}, which is not there"


def test_no_line_of_a_shell_script_is_a_syntax_error() -> None:
    run("bash", "-n", ".ci/run")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_workflow_runs_the_same_two_commands_and_publishes() -> None:
    workflow = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "book.yml").read_text(encoding="utf-8")
    )
    steps = workflow["jobs"]["test"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands[:2] == ["make book", ".ci/run"]
    assert workflow["jobs"]["publish"]["needs"] == "test"


def test_gpu_command_says_why_nothing_runs_without_a_device() -> None:
    answer = run(sys.executable, "tools/run_gpu.py", env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert "No graphics card to test on" in answer


def test_gpu_command_reads_only_the_tests_that_ask_for_a_device() -> None:
    names = [Path(name).name for name in run_gpu.gpu_tests()]
    assert "test_differential_gpu.py" in names and "test_frame.py" not in names


def test_configuration_loads_nothing_from_outside() -> None:
    for name in ("_config.yml", "_toc.yml", "book/_static/book.css"):
        # the addresses that a launch button leads to are links: a page does not load them
        text = re.sub(r"(?m)^ +\w+_url: .*$", "", (ROOT / name).read_text(encoding="utf-8"))
        assert "//" not in text, f"{name} names an address"
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    sphinx = config["sphinx"]["config"]
    assert config["execute"]["execute_notebooks"] == "off"
    assert sphinx["nb_ipywidgets_js"] == {}
    assert "sphinx_thebe" not in sphinx["extensions"]
    script = (ROOT / "book" / "_static" / sphinx["mathjax_path"]).resolve()
    relative = script.relative_to(ROOT / "book")  # _static/../x is x at the root of the site
    assert (ROOT / "assets" / relative).exists()


def test_no_script_lies_where_every_page_would_load_it() -> None:
    assert list((ROOT / "book" / "_static").rglob("*.js")) == []


@pytest.mark.parametrize("folder", vendor_assets.FOLDERS)
def test_vendored_files_are_what_the_manifest_says_and_carry_their_licence(folder: str) -> None:
    vendor = ROOT / folder
    manifest = json.loads((vendor / "manifest.json").read_text(encoding="utf-8"))
    listed = {"manifest.json"}
    for name, package in manifest.items():
        assert "LICENSE" in package["files"], f"{name} comes without its licence"
        for file, entry in package["files"].items():
            data = (vendor / name / file).read_bytes()
            assert hashlib.sha256(data).hexdigest() == entry["sha256"], f"{name}/{file} was changed"
            listed.add(f"{name}/{file}")
    there = {p.relative_to(vendor).as_posix() for p in vendor.rglob("*") if p.is_file()}
    assert there == listed
    pinned = {package.name: package.version for package in vendor_assets.FOLDERS[folder]}
    assert {name: package["version"] for name, package in manifest.items()} == pinned


def test_table_of_contents_names_pages_that_exist() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    names = [toc["root"], *(c["file"] for part in toc["parts"] for c in part["chapters"])]
    for name in names:
        assert any((ROOT / f"{name}{end}").exists() for end in (".ipynb", ".md")), name
    pages = {f"book/{path.stem}" for path in (ROOT / "book").glob("*.ipynb")}
    assert pages <= set(names), "a chapter that the table of contents leaves out"


def test_licences_are_there() -> None:
    assert "BSD 3-Clause" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Attribution 4.0 International" in (ROOT / "LICENSE-TEXT").read_text(encoding="utf-8")
