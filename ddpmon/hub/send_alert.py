"""Sends one alert to the services of `--notify` through apprise: python -m ddpmon.hub.send_alert

It is a separate program, so that a slow service cannot delay the hub. It reads the alert and the URLs, each as a line
of JSON, from its standard input. URLs contain passwords, so they are not passed as arguments, and never printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from typing import Any

from ddpmon.redaction import redact_text

MAX_CHARS = 1000
_ENDED = {"failed", "lost", "done"}
_TITLES = {"failed": "has failed", "running": "needs attention"}
"""Words of the title for some states. Other states follow "is" in the title, as in "is done"."""
_TYPES = {"warn": "warning", "critical": "failure"}
"""Type of apprise's message by severity, which services show as a colour or a sign."""


def texts(alert: dict[str, Any]) -> tuple[str, str]:
    """Return the title and the body of an alert, with secrets redacted."""
    run, finding = alert["run"], alert["finding"] or {}
    state = alert["state"]
    title = f"ddpmon: {run['name']} on {run['host']} {_TITLES.get(state, f'is {state}')}"
    advice = f"next: {finding['advice']}" if finding.get("advice") else ""
    command = "report" if state in _ENDED else "attach"
    lines = [line for line in (alert["sentence"], advice, f"ddpmon {command} {run['id']}") if line]
    return redact_text(title)[:MAX_CHARS], "\n".join(redact_text(line)[:MAX_CHARS] for line in lines)


def main() -> None:
    """Send the alert to each URL. If that fails, exit with 1 and a line that names the services."""
    alert, urls = (json.loads(line) for line in sys.stdin)
    title, body = texts(alert)
    kind = _TYPES.get(alert["severity"], "info")
    missed = []
    logging.disable()  # because apprise logs URLs
    import apprise

    for url in urls:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            service = apprise.Apprise()
            reached = service.add(url) and service.notify(title=title, body=body, notify_type=kind)
        if not reached:
            missed.append(url.partition("://")[0])
    if missed:
        sys.exit(f"{', '.join(missed)} did not take the alert")


if __name__ == "__main__":
    main()
