"""ddpmon metrics: an endpoint for Prometheus."""

from __future__ import annotations

import ipaddress
import signal

import click

from ddpmon.addresses import bracketed, split


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
    help="Where to answer; port 0 takes a free one.",
)
def metrics(listen: tuple[str, int]) -> None:
    """Serve the state of all your runs on this machine to Prometheus, until Ctrl-C.

    One endpoint for all of them, those included that begin later; a run that has ended stays for 15 more minutes.
    The metrics are those of ddpmon export --format openmetrics. docs/grafana.json is a dashboard for them.
    """
    from ddpmon import runs
    from ddpmon.export.endpoint import serve

    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before there are threads, which would get them
    try:
        host, _ = listen
        port = serve(*listen)
        print(
            f"metrics of the runs in {runs.home()}: http://{bracketed(host)}:{port}/metrics; Ctrl-C ends it", flush=True
        )
        if not _loopback(host):
            print("whoever reaches that port reads the names of runs, ranks and hosts, and all numbers", flush=True)
        signal.sigwait(ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
