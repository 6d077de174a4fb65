import json
import logging
import struct

import pytest

from springtide.core.errors import RunDamagedError
from springtide.evaluation.count import Count
from springtide.evaluation.report import HEADER, duration, load_result, success_rows, write_report
from springtide.evaluation.result import RunResult, Span, history, partial_result, read_result
from springtide.telemetry.jsonl import JsonlSink
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.run_folder import Parent, RunFolder
from springtide.telemetry.status import StatusBoard

RESULT = RunResult(
    run="demo", seconds=305.0, before=Count(68, 200, 3), after=Count(176, 198, 2), goodput_tokens_per_s=3210.0
)


def record(step, **metrics):
    names = {name.replace("__", "/"): value for name, value in metrics.items()}
    return MetricRecord(time=float(step), step=step, metrics=names)


RECORDS = [
    record(0, eval__successes=68.0, eval__valid=200.0, eval__invalid=3.0),
    record(
        1, reward__mean=0.4, reward__standard_error=0.05, ledger__engine__decode=9.0, ledger__engine__unattributed=1.0
    ),
    record(2, reward__mean=0.6, ledger__engine__decode=18.0, ledger__engine__unattributed=2.0),
    record(2, eval__successes=176.0, eval__valid=198.0, eval__invalid=2.0, rollout__goodput_tokens_per_s=3210.0),
]


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder.create(name="demo", recipe_text="", path=tmp_path / "demo", parent=Parent("older", 40))
    sink = JsonlSink(folder.metrics)
    for line in RECORDS:
        sink.write(line)
    sink.close()
    return folder


def test_the_table_has_invalid_episodes_beside_and_never_inside():
    table = success_rows(RESULT)
    assert [len(row) for row in table] == [len(HEADER)] * 3
    assert table[0] == ("before", "0.340", "0.278 to 0.408", "68 of 200", "3")
    assert table[1][1:] == ("0.889", "0.838 to 0.925", "176 of 198", "2")
    assert table[2][0] == "gain"
    assert table[2][1] == "+0.549"


def test_a_count_without_valid_episodes_has_no_rate():
    assert success_rows(RunResult(run="r", seconds=1, before=None, after=Count(0, 0, 9), goodput_tokens_per_s=0)) == [
        ("after", "-", "-", "0 of 0", "9")
    ]


def test_history_folds_the_records():
    past = history(RECORDS)
    assert [(point.step, point.count) for point in past.evaluations] == [
        (0, Count(68, 200, 3)),
        (2, Count(176, 198, 2)),
    ]
    assert [(point.step, point.mean, point.standard_error) for point in past.rewards] == [
        (1, 0.4, 0.05),
        (2, 0.6, None),
    ]
    assert past.ledger == {"engine": {"decode": 18.0, "unattributed": 2.0}}
    assert past.goodput_tokens_per_s == 3210.0


def test_a_resumed_process_adds_to_the_ledger():
    """Totals 9 and 1, then a new process that starts from zero: 4 and 2. A bin that shows up twice counts twice."""
    first = [record(1, ledger__a__x=5.0, ledger__a__y=1.0), record(2, ledger__a__x=9.0, ledger__a__y=1.0)]
    second = [record(2, ledger__a__x=3.0, ledger__a__y=2.0), record(3, ledger__a__x=4.0, ledger__a__y=2.0)]
    assert history(first + second).ledger == {"a": {"x": 13.0, "y": 3.0}}


def test_a_process_whose_totals_are_all_larger_is_told_by_when_its_lanes_began():
    """Killed after one step at second 10, resumed at 100: its first record has booked more in every bin."""
    first = [MetricRecord(time=10.0, step=1, metrics={"ledger/a/x": 6.0, "ledger/a/y": 4.0})]
    second = [
        MetricRecord(time=120.0, step=1, metrics={"ledger/a/x": 12.0, "ledger/a/y": 8.0}),
        MetricRecord(time=130.0, step=2, metrics={"ledger/a/x": 20.0, "ledger/a/y": 10.0, "ledger/b/z": 1.0}),
    ]
    past = history(first + second)
    assert past.ledger == {"a": {"x": 26.0, "y": 14.0}, "b": {"z": 1.0}}
    assert past.processes == (Span(0.0, 10.0), Span(100.0, 130.0))


def test_a_process_that_lacks_a_bin_of_the_last_one_is_a_new_one():
    """The first one warm-started; the second did not have to. A lane that is new began no process."""
    first = [record(1, ledger__a__warm_start=5.0), record(2, ledger__a__warm_start=5.0, ledger__b__z=1.0)]
    second = [record(3, ledger__a__train=9.0, ledger__b__z=1.0)]
    past = history(first + second)
    assert past.ledger == {"a": {"train": 9.0, "warm_start": 5.0}, "b": {"z": 2.0}}
    assert len(past.processes) == 2


def test_a_damaged_evaluation_is_left_out():
    nothing = record(1, eval__successes=float("nan"), eval__valid=10.0)
    more_than_all = record(2, eval__successes=11.0, eval__valid=10.0)
    assert len(history([RECORDS[0], nothing, more_than_all]).evaluations) == 1


def test_the_seconds_of_a_run_are_those_of_all_its_processes(folder):
    folder.metrics.unlink()
    sink = JsonlSink(folder.metrics)
    for time, total in ((40.0, 30.0), (250.0, 50.0), (290.0, 90.0)):
        sink.write(MetricRecord(time=time, step=1, metrics={"ledger/a/x": total}))
    sink.close()
    assert load_result(folder)[0].seconds == 120.0, "30 s, then 90 s"
    moments = iter((200.0, 300.0))
    StatusBoard(folder.status, run="demo", now=lambda: next(moments, 300.0)).update(phase="training")
    assert load_result(folder)[0].seconds == 130.0, "30 s, then what the last one says itself"


def test_a_run_that_has_not_ended_reports_so_far():
    past = history(RECORDS)
    so_far = partial_result("demo", 12.0, past)
    assert (so_far.before, so_far.after) == (Count(68, 200, 3), Count(176, 198, 2))
    assert partial_result("demo", 0.0, history([])).before is None
    assert partial_result("demo", 1.0, history(RECORDS[:1])).after is None


def test_the_report_is_written_and_its_result_reads_back(folder):
    write_report(folder, RESULT)
    document = json.loads(folder.result.read_text())
    assert document["before"] == {"k": 68, "n": 200, "invalid": 3}
    assert document["evaluations"][1] == {"step": 2, "count": {"k": 176, "n": 198, "invalid": 2}}
    assert read_result(folder.result).result == RESULT
    text = folder.report.read_text()
    for part in (
        "# Run demo",
        "Branched from run older at step 40.",
        "| before | 0.340 |",
        "5 min 05 s",
        "decode 90.0%",
    ):
        assert part in text
    assert "10.00% |" in text, "the unattributed share has its own column"
    for command in ("springtide show", "springtide train --resume", "springtide export"):
        assert f"{command} {folder.path}" in text, "wherever its folder is"


def test_the_curve_is_a_picture(folder):
    pytest.importorskip("matplotlib")
    write_report(folder, RESULT)
    content = folder.curve.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > 600
    assert height > 400
    assert "![" in folder.report.read_text()


def test_without_matplotlib_the_report_has_no_curve(folder, monkeypatch):
    monkeypatch.setattr("springtide.evaluation.report.find_spec", lambda name: None)
    write_report(folder, RESULT)
    assert not folder.curve.exists()
    assert "![" not in folder.report.read_text()


@pytest.mark.parametrize("error", [ImportError("no such symbol"), AttributeError("rcParams"), ValueError()])
def test_a_matplotlib_that_is_broken_costs_the_curve_and_not_the_report(folder, monkeypatch, caplog, error):
    def broken(*arguments, **keywords):
        raise error

    monkeypatch.setattr("springtide.evaluation.report.draw_curve", broken)
    with caplog.at_level(logging.WARNING, "springtide.evaluation"):
        write_report(folder, RESULT)
    assert "![" not in folder.report.read_text()
    (said,) = [entry.getMessage() for entry in caplog.records]
    assert said.startswith("The report has no curve, as matplotlib failed: ")


def test_a_result_is_loaded_from_what_there_is(folder):
    board = StatusBoard(folder.status, run="demo", now=lambda: 100.0)
    board.update(phase="training")
    so_far, _ = load_result(folder)
    assert so_far.after == Count(176, 198, 2)
    write_report(folder, RESULT)
    assert load_result(folder)[0] == RESULT


@pytest.mark.parametrize("content", [b"{", b'{"run": "\xff"}', b'"\xff', b"\xff\xfe"])
def test_a_damaged_result_is_said_so(folder, content):
    folder.result.write_bytes(content)
    with pytest.raises(RunDamagedError, match="cannot be read"):
        load_result(folder)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (305, "5 min 05 s"), (7500, "2 h 05 min")]
)
def test_durations_read_like_speech(seconds, text):
    assert duration(seconds) == text


def test_the_report_has_the_costs_of_the_last_step_that_told_any(folder):
    sink = JsonlSink(folder.metrics)
    sink.write(record(3, costs__decode_base=0.5, costs__publish=2.0))
    sink.write(record(4, costs__decode_base=0.0125, costs__publish=3.0))
    sink.write(record(4, eval__successes=1.0, eval__valid=2.0))
    sink.close()
    write_report(folder, RESULT)
    assert "as fitted (service costs, in seconds): decode_base 0.0125, publish 3." in folder.report.read_text()
