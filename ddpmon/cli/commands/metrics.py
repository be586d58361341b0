"""ddpmon metrics: an endpoint for Prometheus, or a push to an OpenTelemetry collector."""

from __future__ import annotations

import ipaddress
import logging
import signal
import sys
import threading

import click

from ddpmon import runs
from ddpmon.addresses import bracketed, split
from ddpmon.cli.options import Within, every


def _address(_context: click.Context, _param: click.Parameter, value: str) -> tuple[str, int]:
    try:
        return split(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, as 127.0.0.1:9846") from None


@click.command()
@click.option(
    "--listen",
    callback=_address,
    default="127.0.0.1:9846",
    metavar="HOST:PORT",
    show_default=True,
    help="Address and port to listen on; port 0 picks a free port.",
)
@click.option("--otlp", metavar="URL", help="Push the metrics to an OpenTelemetry collector over OTLP/HTTP instead.")
@every("With --otlp, the time between two pushes of the metrics.", 15.0, Within(1, 3600))
def metrics(listen: tuple[str, int], otlp: str | None, every: float) -> None:
    """Serve the state of all your runs on this machine to Prometheus, until Ctrl-C.

    One endpoint serves all runs, including runs that start later. The endpoint still serves a run for 15 minutes after
    its end. The metrics are the same as in ddpmon export --format openmetrics; docs/grafana.json is a Grafana dashboard
    for them. With --otlp, the command pushes the same metrics to a collector instead, for example to
    http://127.0.0.1:4318/v1/metrics.
    """
    from ddpmon.export.endpoint import serve

    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    if otlp is not None:
        _push(otlp, every, ends)
        return
    # Block the signals before threads exist, because a thread that does not block a signal may receive it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        host, _ = listen
        port = serve(*listen)
        print(
            f"serving the metrics of the runs in {runs.home()} at http://{bracketed(host)}:{port}/metrics "
            "until you press Ctrl-C",
            flush=True,
        )
        if not _loopback(host):
            print("everyone who can reach this port can read all metrics, and the names of runs and hosts", flush=True)
        signal.sigwait(ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _push(url: str, every_s: float, ends: set[signal.Signals]) -> None:
    """Push metrics until a signal arrives. Of several failed pushes in a row, only the first is reported."""
    from ddpmon.export.endpoint import Runs
    from ddpmon.export.openmetrics import exporter, push

    to, every_run, ending = exporter(url), Runs(), threading.Event()

    def end(*_: object) -> None:
        ending.set()
        to.shutdown()  # Otherwise the exporter would continue its retries.

    # Unlike in `metrics`, the signals need handlers: during a push, this thread does not wait for a signal.
    before = {number: signal.signal(number, end) for number in ends}
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # ddpmon prints one line of its own.
    try:
        print(
            f"pushing the metrics of the runs in {runs.home()} to {url} every {every_s:g} s until you press Ctrl-C",
            flush=True,
        )
        taken = True
        while not ending.is_set():
            was_taken, taken = taken, push(to, every_run.collect())
            if was_taken and not taken and not ending.is_set():
                print(
                    f"ddpmon: the collector at {url} does not accept the metrics; trying again every {every_s:g} s",
                    file=sys.stderr,
                )
            ending.wait(every_s)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
