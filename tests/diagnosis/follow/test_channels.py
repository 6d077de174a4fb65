"""Where alerts go, and what happens where they cannot."""

import json
import re
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis.follow.alert import Alert
from springtide.diagnosis.follow.prometheus import PrometheusEndpoint, PrometheusFile, exposition
from springtide.diagnosis.follow.webhook import KEPT, Webhook
from springtide.diagnosis.verdict import Diagnosis, Symptom, Verdict

ALERT = Alert(kind="symptom", run="runs/a", text="SICK S06 Collapse.", time=1.0, step=30, symptom="S06", verdict="SICK")
SICK = Diagnosis(
    source='runs/"a"\n\\b',
    framework="trl",
    steps=30,
    verdict=Verdict.SICK,
    symptoms=(
        Symptom(id="S06", name="collapse", title="", verdict=Verdict.SICK),
        Symptom(id="S20", name="entropy", title="", verdict=Verdict.OK),
        Symptom(id="S39", name="gap", title="", verdict=Verdict.UNAVAILABLE),
    ),
)


def test_a_webhook_gets_text_and_the_alert():
    sent = []
    hook = Webhook(
        "https://chat.example/hook", warn=pytest.fail, post=lambda address, body: sent.append((address, body))
    )
    hook.send(ALERT)
    ((address, body),) = sent
    assert address == "https://chat.example/hook"
    document = json.loads(body)
    assert document["text"] == "runs/a: SICK S06 Collapse."
    assert (document["alert"]["symptom"], document["alert"]["step"]) == ("S06", 30)


def test_a_webhook_that_is_away_gets_everything_later_and_in_order():
    sent, warnings, tries = [], [], []
    away = [True]

    def post(address, body):
        tries.append(1)
        if away:
            raise TimeoutError("timed out")
        sent.append(json.loads(body)["alert"]["step"])

    hook = Webhook("http://h/", warn=warnings.append, post=post)
    for step in range(3):
        hook.send(Alert(kind="symptom", run="a", text="", time=0.0, step=step))
    hook.looked((), 0.0)
    assert (sent, len(tries), len(warnings)) == ([], 4, 1)
    away.clear()
    hook.looked((), 0.0)
    assert sent == [0, 1, 2]


def test_what_is_undelivered_does_not_grow_without_end():
    def post(address, body):
        raise OSError("no route")

    hook = Webhook("http://h/", warn=lambda text: None, post=post)
    for step in range(3 * KEPT):
        hook.send(Alert(kind="symptom", run="a", text="", time=0.0, step=step))
    assert len(hook._waiting) == KEPT


@pytest.mark.parametrize("address", ["ftp://x/", "file:///etc/passwd", "chat.example/hook", "http://", ""])
def test_addresses_that_are_none_are_refused(address):
    with pytest.raises(UsageError, match="--webhook"):
        Webhook(address, warn=pytest.fail)


def test_over_a_real_connection():
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    warnings = []
    try:
        hook = Webhook(f"http://127.0.0.1:{server.server_address[1]}/", warn=warnings.append)
        hook.send(ALERT)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert [each["alert"]["run"] for each in heard] == ["runs/a"]
    assert warnings == []
    Webhook(f"http://127.0.0.1:{server.server_address[1]}/", warn=warnings.append).send(ALERT)
    assert "could not be reached" in warnings[0]


def test_exposition_is_what_prometheus_reads():
    text = exposition((SICK,), 12.5, 3)
    label = r"[a-z]+=\"(?:[^\"\\\n]|\\[\\n\"])*\""
    for line in text.splitlines():
        assert re.fullmatch(rf"# (?:HELP|TYPE) \w+ .+|\w+(?:\{{{label}(?:,{label})*\}})? -?[\d.]+", line), line
    assert 'springtide_doctor_verdict{run="runs/\\"a\\"\\n\\\\b",framework="trl"} 2' in text
    assert 'symptom="S06",name="collapse"} 2' in text
    assert 'symptom="S20",name="entropy"} 0' in text
    assert "S39" not in text
    assert "springtide_doctor_alerts 3" in text


def test_the_text_file_is_replaced_as_a_whole(tmp_path):
    file = PrometheusFile(tmp_path / "doctor.prom", warn=pytest.fail)
    file.send(ALERT)
    file.looked((SICK,), 1.0)
    file.looked((SICK,), 2.0)
    assert "springtide_doctor_alerts 1\n" in (tmp_path / "doctor.prom").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["doctor.prom"]


def test_a_text_file_that_cannot_be_written_is_said_once(tmp_path):
    warnings = []
    folder = tmp_path / "gone"
    folder.mkdir()
    file = PrometheusFile(folder / "doctor.prom", warn=warnings.append)
    folder.rmdir()
    file.looked((), 1.0)
    file.looked((), 2.0)
    assert len(warnings) == 1
    with pytest.raises(UsageError, match="make it first"):
        PrometheusFile(folder / "doctor.prom", warn=pytest.fail)


def test_the_endpoint_serves_the_newest_look():
    endpoint = PrometheusEndpoint("127.0.0.1", 0)
    try:
        endpoint.send(ALERT)
        endpoint.looked((SICK,), 1.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            assert response.read().decode() == exposition((SICK,), 1.0, 1)
        with pytest.raises(UsageError, match="free port"):
            PrometheusEndpoint("127.0.0.1", endpoint.port)
    finally:
        endpoint.close()


def test_the_text_file_replaces_nothing_but_one_of_its_own(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("{'reward': 0.5}\n")
    with pytest.raises(UsageError, match=r"--prometheus .*train\.log: this file is there and is no such report"):
        PrometheusFile(log, warn=pytest.fail)
    assert log.read_text() == "{'reward': 0.5}\n"
    own = tmp_path / "doctor.prom"
    for _ in range(2):
        PrometheusFile(own, warn=pytest.fail).looked((SICK,), 1.0)
    assert own.read_text() == exposition((SICK,), 1.0, 0)
