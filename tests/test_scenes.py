"""What holds for the scenes of all explorers, in Python and in the JavaScript of the page."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from explorer_pages import same
from small_scenes import MATTERS, check_scene, settings_of

from kvbook.explorers.catalogue import ALL, memory_explorer, roofline_explorer, tables
from kvlib.costs import GPUS


@pytest.mark.parametrize("name", ALL)
def test_every_scene_is_whole_at_random_settings(name: str) -> None:
    explorer = ALL[name]()
    for settings in settings_of(name, 250):
        scene = explorer.scene(**settings)
        check_scene(scene)
        said = json.dumps(scene, ensure_ascii=False)
        for bad in ("NaN", "nan", "Infinity", "undefined", "None", "null", "  "):
            assert bad not in said.replace("nanosecond", ""), (bad, settings)
        assert all(len(ln["points"]) >= 2 for p in scene["panels"] for ln in p.get("lines", []))
        assert scene["summary"].endswith(".") and scene["summary"].count(". ") <= 6


@pytest.mark.parametrize("name", ALL)
def test_a_scene_leaves_settings_and_tables_as_they_are(name: str) -> None:
    explorer = ALL[name]()
    before = json.dumps([explorer.settings, tables()])
    assert explorer.scene() == explorer.scene()
    assert json.dumps([explorer.settings, tables()]) == before


@pytest.mark.parametrize("name", ALL)
def test_every_control_changes_the_scene(name: str) -> None:
    for control in ALL[name]().controls:
        explorer = ALL[name](**MATTERS.get(control.name, {}))
        scenes = {json.dumps(explorer.scene(**{control.name: value})) for value in control.values}
        assert len(scenes) == len(control.values), control.name


def test_unconfirmed_figures_are_said_to_be() -> None:
    for key, row in tables()["gpus"].items():
        doubted = not GPUS[key].value("usable").confirmed
        assert ("usable" in row["unconfirmed"]) == doubted
        summary = memory_explorer(gpu=key).scene()["summary"]
        assert ("unconfirmed" in summary) == doubted
    assert "unconfirmed" in roofline_explorer(gpu="h100-nvl").scene()["summary"]
    assert any(row["unconfirmed"] for row in tables()["gpus"].values())


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run JavaScript")
def test_node_makes_the_same_scenes(tmp_path: Any) -> None:
    from build_explorers import script

    jobs = [[name, s] for name in ALL for s in settings_of(name, 300, seed=8)]
    program = """
        const {readFileSync} = require("fs");
        const window = {};
        %s
        const jobs = JSON.parse(readFileSync(process.argv[2], "utf8"));
        const {scenes, tables} = window.kvExplorers;
        process.stdout.write(JSON.stringify(jobs.map(([name, s]) => scenes[name](s, tables))));
    """
    (tmp_path / "run.js").write_text(program % script(), encoding="utf-8")
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    run = ["node", str(tmp_path / "run.js"), str(tmp_path / "jobs.json")]
    done = subprocess.run(run, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for (name, settings), made in zip(jobs, json.loads(done.stdout), strict=True):
        same(ALL[name](**settings).scene(), made, f"{name} {settings}")
