"""ddpmon metrics: what Prometheus reads of all runs, whatever their hubs do."""

from __future__ import annotations

import http.server
import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ddpmon import runs
from ddpmon.errors import HubUnreachableError
from ddpmon.export import endpoint as endpoint_module
from ddpmon.export import openmetrics
from ddpmon.messages import QUANTITIES
from ddpmon.recording.recorded import recorded_snapshot
from tests.conftest import ddpmon_program
from tests.hub.conftest import until
from tests.recordings import record
from tests.tui import snapshots
from tests.worlds import own_times, records


class Endpoint:
    """The program, and what it answers."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [ddpmon_program(), "metrics", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        )
        first = self.process.stdout.readline()
        self.address = re.search(r"http://127\.0\.0\.1:\d+/metrics", first)[0]

    def read(self, query: str = "") -> dict[tuple[str, str], object]:
        """{(name, run): value} of the samples without a further label, and the run's state."""
        wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        with urllib.request.urlopen(urllib.request.Request(self.address + query, headers=wanted), timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [sample for family in families for sample in family.samples]
        values = {(s.name, s.labels["run"]): s.value for s in samples if set(s.labels) == {"run", "run_id"}}
        states = {("state", s.labels["run"]): s.labels["state"] for s in samples if "state" in s.labels and s.value}
        return values | states

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


@pytest.fixture
def endpoint(home):
    told = Endpoint()
    yield told
    assert told.end() == 0


def test_runs_that_go_on_and_those_that_ended_lately_are_told_as_far_as_they_are_asked_for(stage, endpoint):
    stage.save(world_size=2)
    stage.hub()
    ranks = [stage.rank(rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.join()
    told = records(own_times(30, 2), first=1)
    for rank in ranks:
        rank.train(told[rank.rank])
    record(own_times(20, 2), ended_at=time.time() - 10, exit_code=0)
    record(own_times(20, 2), ended_at=time.time() - 3600, id="20260909-110000-7f3a", name="long-ago")
    until(lambda: endpoint.read().get(("ddpmon_steps_total", "made-up")) == 30, "all steps")
    values = endpoint.read()
    assert {run for _, run in values} == {"made-up", "told"}
    assert values["ddpmon_hub_answers", "made-up"] == 1
    assert values["ddpmon_steps_total", "told"] == 20
    assert ("ddpmon_hub_answers", "told") not in values
    assert (values["state", "told"], values["state", "made-up"]) == ("done", "running")
    asked = endpoint.read("?name[]=ddpmon_steps_total&name[]=ddpmon_world_size&name[]=nothing")
    assert {name for name, _ in asked} == {"ddpmon_steps_total", "ddpmon_world_size"}


def test_a_hub_that_hangs_is_told_as_one_and_the_rest_is_there(stage, endpoint):
    hub = stage.hub()
    record(own_times(20, 2), ended_at=time.time() - 10, exit_code=0)
    until(lambda: endpoint.read().get(("ddpmon_hub_answers", "made-up")) == 1, "an answer")
    hub.send_signal(signal.SIGSTOP)
    try:
        until(lambda: endpoint.read()["ddpmon_hub_answers", "made-up"] == 0, "silence")
        values = endpoint.read()
        assert ("ddpmon_world_size", "made-up") not in values
        assert values["ddpmon_steps_total", "told"] == 20
    finally:
        hub.send_signal(signal.SIGCONT)
    until(lambda: endpoint.read()["ddpmon_hub_answers", "made-up"] == 1, "an answer again")


def test_hubs_are_asked_together(stage, monkeypatch):
    """Each of them hangs until all of them were asked."""
    stage.save()
    run = runs.find("made-up")
    asked = threading.Barrier(3)

    def hanging(run, answer_s):
        asked.wait(60)
        raise HubUnreachableError("no snapshot")

    monkeypatch.setattr(endpoint_module, "snapshot_now", hanging)
    monkeypatch.setattr(runs, "all_runs", lambda: [run] * 3)
    monkeypatch.setattr(runs.Run, "state", lambda run: "running")
    answers = endpoint_module.Runs().collect()[0]
    assert [sample.value for sample in answers.samples] == [0, 0, 0]


def test_what_is_no_address_is_one_line(cli):
    refused = cli("metrics", "--listen", "127.0.0.1:x")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "give HOST:PORT" in refused.stderr


def test_an_address_that_cannot_be_had_is_one_line(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = cli("metrics", "--listen", f"127.0.0.1:{port}")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"ddpmon: --listen 127.0.0.1:{port}: Address already in use\n",
    )


def test_the_dashboard_for_grafana_asks_for_what_is_told():
    told = {family.name for family in text_string_to_metric_families(openmetrics.text(snapshots.slow()))}
    told |= {"ddpmon_steps_total", "ddpmon_hub_answers"} | {row.metric_name for row in QUANTITIES.values()}
    dashboard = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text())
    asked = re.findall(r"\bddpmon_\w+", json.dumps([dashboard["panels"], dashboard["templating"]]))
    assert len(asked) > 10
    assert set(asked) <= told


class Collector(http.server.ThreadingHTTPServer):
    """Takes what is pushed, as an OpenTelemetry collector does."""

    def __init__(self):
        self.taken = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.server.taken.append((self.path, ExportMetricsServiceRequest.FromString(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def collector():
    made = Collector()
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_collector_gets_what_prometheus_reads(home, collector):
    run = record(own_times(20, 2), ended_at=time.time() - 10, exit_code=0)
    command = [ddpmon_program(), "metrics", "--otlp", f"http://127.0.0.1:{collector.server_port}/v1/metrics"]
    pushing = subprocess.Popen([*command, "--every", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(collector.taken) > 1, "two pushes", 60)
    finally:
        pushing.send_signal(signal.SIGTERM)
        said, errors = pushing.communicate(timeout=30)
    assert (pushing.returncode, errors) == (0, "")
    assert "to http://127.0.0.1" in said
    path, message = collector.taken[0]
    assert path == "/v1/metrics"
    pushed = {}
    for metric in message.resource_metrics[0].scope_metrics[0].metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = frozenset((label.key, label.value.string_value) for label in point.attributes)
            pushed[metric.name + "_total" * (kind == "sum"), labels] = point.as_double
    read = openmetrics.text(recorded_snapshot(run))
    wanted = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(read)
        for sample in family.samples
    }
    assert pushed == wanted
    assert len(wanted) > 20


def test_a_collector_that_is_not_there_is_said_once(home):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [ddpmon_program(), "metrics", "--otlp", f"http://127.0.0.1:{port}/v1/metrics", "--every", "1"]
    pushing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "does not accept the metrics" in pushing.stderr.readline()
    pushing.send_signal(signal.SIGTERM)
    assert pushing.communicate(timeout=30)[1] == ""
    assert pushing.returncode == 0


@pytest.mark.parametrize("url", ["", "127.0.0.1:4318", "ftp://x", "http://"])
def test_what_is_no_url_is_one_line(cli, url):
    refused = cli("metrics", "--otlp", url)
    assert refused.returncode == 2
    assert "give a URL" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
