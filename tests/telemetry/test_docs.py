"""The page about the run folder is an interface: it may not drift from what is written."""

import re
from pathlib import Path

import msgspec

from springtide.telemetry.names import METRICS
from springtide.telemetry.run_folder import RunFolder, RunInfo
from springtide.telemetry.status import Status

PAGE = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text(encoding="utf-8")


def test_every_metric_is_listed_as_it_is_declared():
    listed = re.findall(r"^\| `([^`]+/[^`]+)` \| ([^|]*) \| (.+) \|$", PAGE.split("### Names")[1], re.MULTILINE)
    assert listed == [(metric.name, metric.unit, metric.meaning) for metric in METRICS]


def test_every_file_and_field_is_named(tmp_path):
    folder = RunFolder(tmp_path, RunInfo(id="r", created="", springtide=""))
    paths = [
        value for name in vars(RunFolder) if isinstance(value := getattr(folder, name), Path) and value != tmp_path
    ]
    assert len(paths) > 8
    for path in paths:
        assert f"`{path.name}" in PAGE, path.name
    for field in msgspec.structs.fields(Status):
        assert f"`{field.name}`" in PAGE, field.name
    for field in msgspec.structs.fields(RunInfo):
        assert f'"{field.name}":' in PAGE, field.name
