"""Verdicts for Prometheus: as a text file for the node exporter's textfile collector, or at an address of our own."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from springtide.core.errors import UsageError
from springtide.diagnosis.follow.alert import SEVERITY, Alert
from springtide.diagnosis.reports.destination import PROMETHEUS, require_free
from springtide.diagnosis.verdict import Diagnosis
from springtide.telemetry.run_folder import write_atomically

TYPE = "text/plain; version=0.0.4; charset=utf-8"

HELP = {
    "springtide_doctor_verdict": "Of the run: 0 OK, 1 WATCH, 2 SICK; absent where it cannot be judged.",
    "springtide_doctor_symptom": "Of a symptom: 0 OK, 1 WATCH, 2 SICK; absent where it cannot be judged.",
    "springtide_doctor_step": "The last train step that was read.",
    "springtide_doctor_alerts": "Alerts since the watch began.",
    "springtide_doctor_last_look_timestamp_seconds": "When the runs were last diagnosed.",
}


def exposition(diagnoses: tuple[Diagnosis, ...], now: float, alerts: int) -> str:
    """The text that Prometheus reads."""
    samples: dict[str, list[str]] = {name: [] for name in HELP}
    for each in diagnoses:
        run = {"run": each.source, "framework": each.framework}
        samples["springtide_doctor_step"].append(_sample(run, each.steps))
        if each.verdict in SEVERITY:
            samples["springtide_doctor_verdict"].append(_sample(run, SEVERITY[each.verdict]))
        samples["springtide_doctor_symptom"] += [
            _sample(run | {"symptom": symptom.id, "name": symptom.name}, SEVERITY[symptom.verdict])
            for symptom in each.symptoms
            if symptom.verdict in SEVERITY
        ]
    samples["springtide_doctor_alerts"].append(f" {alerts}")
    samples["springtide_doctor_last_look_timestamp_seconds"].append(f" {now:.3f}")
    lines = []
    for name, found in samples.items():
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge", *(f"{name}{each}" for each in found)]
    return "\n".join(lines) + "\n"


class PrometheusFile:
    """Implements Channel. The file is replaced as a whole at each look."""

    def __init__(self, path: Path, *, warn: Callable[[str], None]) -> None:
        require_free(path, option="--prometheus", opening=PROMETHEUS)
        self._path = path
        self._warn = warn
        self._alerts = 0
        self._failing = False

    def send(self, alert: Alert) -> None:
        self._alerts += 1

    def looked(self, diagnoses: tuple[Diagnosis, ...], now: float) -> None:
        try:
            write_atomically(self._path, exposition(diagnoses, now, self._alerts).encode())
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._warn(f"{self._path} could not be written ({error.strerror or error}); it is tried again.")
            self._failing = True


class PrometheusEndpoint:
    """Implements Channel. Serves `/metrics` from a thread of its own until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._alerts = 0
        self._text = exposition((), 0.0, 0)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5.0

            def do_GET(self) -> None:
                body = endpoint._text.encode()
                self.send_response(200 if self.path.split("?")[0] in ("/", "/metrics") else 404)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Scrapes are no news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"--prometheus {host}:{port}: nothing can listen there ({error}); name a free port, such as "
                "127.0.0.1:9187."
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="prometheus", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def send(self, alert: Alert) -> None:
        self._alerts += 1

    def looked(self, diagnoses: tuple[Diagnosis, ...], now: float) -> None:
        self._text = exposition(diagnoses, now, self._alerts)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _sample(labels: dict[str, str], value: float) -> str:
    named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{{{named}}} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
