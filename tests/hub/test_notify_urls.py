"""--notify URL: services are told through apprise, and their URLs are nowhere to be read."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.hub.send_alert import texts
from tests.conftest import ddpmon_program, wait_for

pytest.importorskip("apprise")

SECRET = "hunter22-topic"
ALERT = {
    "run": {"id": "20261120-141502-7f3a", "name": "train", "host": "n0"}, "state": "failed", "severity": "critical",
    "sentence": "rank 1 failed first: --token abcdefgh1", "finding": {"advice": "Look at rank 1."},
}  # fmt: skip


@pytest.fixture
def service():
    """A service that keeps what it is told."""
    told = []

    class Service(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"json://127.0.0.1:{server.server_port}/{SECRET}", told
        server.shutdown()


def files_with(folder: Path, text: str) -> list[str]:
    """Return the names of the files that contain a text."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes())


def test_a_real_run_keeps_the_url_from_its_files_children_and_report(home, service, tmp_path):
    url, told = service
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "print('seen', any('hunter22' in value for value in os.environ.values()))\n"
        "sys.exit('ValueError: --password verysecret1')\n"
    )
    given = {**os.environ, "DDPMON_NOTIFY": f"bell {url}"}
    done = subprocess.run(
        [ddpmon_program(), "exec", "--headless", "--", sys.executable, str(script)],
        env=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    run = runs.find(None)
    wait_for(lambda: told)
    assert told[-1]["title"].endswith("has failed")
    assert told[-1]["type"] == "failure"
    assert "verysecret1" not in json.dumps(told)
    assert SECRET not in done.stdout + done.stderr
    assert "seen False" in "".join(path.read_text() for path in (runs.run_dir(run.id) / "logs").rglob("*.log"))
    assert files_with(runs.home(), SECRET) == ["secrets.json"]
    assert run.notify == ["json://…"]
    shown = subprocess.run([ddpmon_program(), "report", "--format", "json"], capture_output=True, text=True, check=True)
    assert SECRET not in shown.stdout


def test_a_service_that_takes_nothing_is_named_without_its_url():
    lines = "".join(json.dumps(each) + "\n" for each in (ALERT, [f"json://127.0.0.1:9/{SECRET}"]))
    sent = subprocess.run(
        [sys.executable, "-m", "ddpmon.hub.send_alert"], input=lines, capture_output=True, text=True, check=False
    )
    assert (sent.returncode, sent.stdout) == (1, "")
    assert sent.stderr == "json did not take the alert\n"


def test_an_alert_says_what_happened_and_what_to_do_without_secrets():
    title, body = texts(ALERT)
    assert title == "ddpmon: train on n0 has failed"
    assert body.splitlines() == [
        "rank 1 failed first: --token …", "next: Look at rank 1.", "ddpmon report 20261120-141502-7f3a",
    ]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), [
    (("exec", "--notify", f"nosuch://{SECRET}", "--", "true"), "nosuch://… is no URL that apprise knows"),
    (("attach", "--notify", f"ntfy://{SECRET}"), "--notify URL is for runs that begin now"),
])  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_without_being_shown(home, words, said):
    refused = subprocess.run([ddpmon_program(), *words], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert SECRET not in refused.stderr
    assert runs.all_runs() == []
