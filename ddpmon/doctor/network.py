"""Checks the network that a run on several machines, and a dashboard on another machine, would use."""

from __future__ import annotations

import ipaddress
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping

from ddpmon.doctor.check import Check, note, ok, problem

BACKENDS = (("gloo", "GLOO_SOCKET_IFNAME"), ("NCCL", "NCCL_SOCKET_IFNAME"))
_ALONE = "; for runs on several machines, set GLOO_SOCKET_IFNAME to a network interface"
_SSH_S = 5.0


def interfaces(environ: Mapping[str, str]) -> Iterator[Check]:
    """Check that interfaces are up, and that those chosen for gloo and NCCL are among them."""
    import psutil

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    addressed = {
        name for name, addresses in psutil.net_if_addrs().items()
        if any(one.family in {socket.AF_INET, socket.AF_INET6} for one in addresses)
    }  # fmt: skip
    usable = sorted(up & addressed)
    others = [name for name in usable if name != "lo"]
    yield ok(
        "network",
        f"{', '.join(others)} for several machines"
        if others
        else "only loopback is up, which is enough for runs on one machine",
    )
    for backend, variable in BACKENDS:
        chosen = environ.get(variable, "")
        missing = [name for name in _named(chosen) if not any(one.startswith(name) for one in usable)]
        if missing:
            way_out = f"set {variable} to one of {', '.join(usable)}, or unset the variable"
            yield problem(
                f"{backend} interface",
                f"{variable} is {chosen}, but the network interface {missing[0]} is not up",
                way_out,
            )
        elif chosen:
            yield ok(f"{backend} interface", f"{variable}={chosen}")


def names() -> Check:
    """Check that the host names resolve that launchers and gloo look up: localhost, and this machine's own name."""
    own = socket.gethostname()
    addresses, unknown = {}, {}
    for name, usual in (("localhost", "127.0.0.1"), (own, "127.0.1.1")):
        try:
            addresses[name] = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]).partition("%")[0]
        except OSError as error:
            unknown[name] = f"'{usual} {name}'", error.strerror
    if unknown:
        verb, lines = ("does", "the line") if len(unknown) == 1 else ("do", "the lines")
        wanted = " and ".join(line for line, _ in unknown.values())
        reason = next(reason for _, reason in unknown.values())
        return note(
            "host names",
            f"{' and '.join(unknown)} {verb} not resolve: {reason}; ddpmon run needs the name only on several machines",
            f"for other launchers, add {lines} {wanted} to /etc/hosts, or set GLOO_SOCKET_IFNAME=lo",
        )
    loopback = ipaddress.ip_address(addresses[own]).is_loopback
    return ok("host names", f"{own} is {addresses[own]}{_ALONE if loopback else ''}")


def ssh(environ: Mapping[str, str]) -> Check:
    """Check that ssh works, which ddpmon attach USER@HOST needs."""
    try:
        words = shlex.split(environ.get("DDPMON_SSH", "")) or ["ssh"]
    except ValueError as error:
        return problem("ssh", f"DDPMON_SSH: {error}", "close the quotes in DDPMON_SSH, as in a shell")
    program = shutil.which(words[0])
    if program is None:
        way_out = "install openssh-client, or set DDPMON_SSH to another ssh command"
        return note("ssh", f"the program {words[0]}, which ddpmon attach HOST: needs, is missing", way_out)
    try:
        answer = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=_SSH_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return note("ssh", f"{program} does not answer", "set DDPMON_SSH to another ssh command")
    version = (answer.stderr or answer.stdout).partition(",")[0].strip() or program
    agent = (
        "with an ssh agent for keys"
        if environ.get("SSH_AUTH_SOCK")
        else "no ssh agent runs, so ssh uses keys in ~/.ssh, or asks for a password"
    )
    return ok("ssh", f"{version}; {agent}")


def _named(chosen: str) -> list[str]:
    """Return the prefixes of interface names in NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME.

    Commas separate them. NCCL alone also knows ^ (exclude these, for which this returns []) and = (match exactly).
    """
    if chosen.startswith("^"):
        return []
    return [name for word in chosen.removeprefix("=").split(",") if (name := word.partition(":")[0].strip())]
