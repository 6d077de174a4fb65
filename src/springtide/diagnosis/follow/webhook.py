"""Alerts as HTTP posts. One that cannot be delivered is kept and tried again at the next look; the watch goes on."""

from collections import deque
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from springtide.core.errors import UsageError
from springtide.diagnosis.follow.alert import Alert
from springtide.diagnosis.verdict import Diagnosis

TIMEOUT = 5.0
"""Seconds that a post may take."""

KEPT = 100
"""Undelivered alerts; the oldest go first."""

Post = Callable[[str, bytes], None]
"""(address, body); OSError, ValueError or HTTPException where it was not delivered."""


class Webhook:
    """Implements Channel. The body is one JSON object with `text`, which chat services show, and `alert`."""

    def __init__(self, address: str, *, warn: Callable[[str], None], post: Post | None = None) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--webhook {address}: it takes an address that begins with http:// or https://.")
        self._address = address
        self._host = parts.hostname
        self._warn = warn
        self._post = post or _post
        self._waiting: deque[Alert] = deque(maxlen=KEPT)
        self._failing = False

    def send(self, alert: Alert) -> None:
        self._waiting.append(alert)
        self._deliver()

    def looked(self, diagnoses: tuple[Diagnosis, ...], now: float) -> None:
        self._deliver()

    def _deliver(self) -> None:
        """In order, up to the first that fails: a service that is away costs one timeout."""
        while self._waiting:
            alert = self._waiting[0]
            body = msgspec.json.encode({"text": f"{alert.run}: {alert.text}", "alert": alert})
            try:
                self._post(self._address, body)
            except (OSError, ValueError, HTTPException) as error:
                if not self._failing:
                    self._warn(f"The webhook at {self._host} could not be reached ({error}); it is tried again.")
                self._failing = True
                return
            self._failing = False
            self._waiting.popleft()


def _post(address: str, body: bytes) -> None:
    request = Request(address, data=body, headers={"Content-Type": "application/json"}, method="POST")
    with urlopen(request, timeout=TIMEOUT) as response:
        response.read(1024)
