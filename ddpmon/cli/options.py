"""Options that several commands share, the check of their values, and the file for `--output`."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ddpmon import config, runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.redaction import hidden_url

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Within(click.FloatRange):
    """A number within bounds. Unlike click's own range, it refuses "nan"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class WholeNumber(click.IntRange):
    """A whole number within bounds. click's own error message calls it "integer range"; ours says "whole number"."""

    name = "whole number"


class VariableOption(click.Option):
    """An option that an environment variable can set too. An error names the variable only if it gave the value."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        if ctx is not None and ctx.get_parameter_source(self.name or "") is ParameterSource.ENVIRONMENT:
            return super().get_error_hint(ctx)
        return click.Parameter.get_error_hint(self, ctx)


def run_argument(name: str, *, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a click argument for a run of this machine, by name or id, with shell completion.

    The argument is not checked here, because the command reports an unknown run.
    """
    return click.argument(name, required=required, shell_complete=_runs)


def _runs(_context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the names of runs, latest first. An older run with the same name is listed by its id."""
    from click.shell_completion import CompletionItem

    items: dict[str, CompletionItem] = {}
    try:
        latest_first = runs.all_runs()[::-1]
    except DdpmonError:  # The shell expects only words here. The command itself will report the error.
        return []
    for run in latest_first:
        word = run.id if run.name in items else run.name
        if word.startswith(begun):
            items[word] = CompletionItem(word, help=f"{run.state()}, {run.id}")
    return list(items.values())


def theme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--theme`, which sets the environment variable that the dashboard reads."""

    def choose(_context: click.Context, _param: click.Parameter, value: str | None) -> None:
        names = (*config.THEME_NAMES, *config.current().themes)
        if value is not None and value not in names:
            raise click.BadParameter(f"{value!r} is not one of {', '.join(map(repr, names))}.")
        if value is not None:
            os.environ["DDPMON_THEME"] = value

    return click.option(
        "--theme",
        metavar="NAME",
        expose_value=False,
        callback=choose,
        help="Colours of the dashboard: dark, light, ansi, or a theme of the config file.",
    )(function)


@dataclass(frozen=True)
class Notify:
    """The ways in which users are notified that a run needs attention."""

    way: str
    """Notification by the dashboard in its terminal: bell, desktop, both or off."""
    urls: list[str]
    """URLs of services that the run's hub notifies."""


def _notify(_context: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> Notify:
    """Parse `--notify`, and remove URLs from the environment variable, which child processes would inherit."""
    import importlib.util

    for value in values:
        if value not in config.NOTIFY and "://" not in value:
            known = ", ".join(map(repr, config.NOTIFY))
            raise click.BadParameter(f"{value!r} is not one of {known}, and no URL such as ntfy://TOPIC.")
    ways = [value for value in values if value in config.NOTIFY]
    urls = [value for value in values if value not in config.NOTIFY]
    if urls and "DDPMON_NOTIFY" in os.environ:
        os.environ["DDPMON_NOTIFY"] = " ".join(ways)
    if urls and importlib.util.find_spec("apprise") is None:
        raise click.BadParameter("to send alerts to services, ddpmon needs apprise: pip install 'ddpmon[notify]'")
    for url in urls:
        import apprise

        if not apprise.Apprise().add(url):
            raise click.BadParameter(f"{hidden_url(url)} is no URL that apprise knows; see its list of services")
    return Notify(ways[-1] if ways else "off", urls)


def notifications(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--notify`: the ways in which the user is notified when the run gets worse or ends."""
    return click.option(
        "--notify",
        cls=VariableOption,
        multiple=True,
        callback=_notify,
        envvar="DDPMON_NOTIFY",
        show_envvar=True,
        metavar="[bell|desktop|both|off|URL]",
        help="Ring the terminal's bell or notify the desktop when the run needs attention, stalls, fails or ends. The "
        "URL of a service that apprise supports (ntfy://TOPIC, slack://…, mailto://…) sends these messages to that "
        "service, even without a dashboard. Repeat the option to use several of these.",
    )(function)


def _place(_context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check that the client of a tracker is installed; return the option's value unchanged."""
    if value:
        from ddpmon.export.trackers import check_client

        check_client(f"--{param.name}")
    return value


def trackers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--wandb`, `--mlflow` and `--tensorboard`, which publish metrics and findings to these tools."""
    for name, metavar, text in (
        ("tensorboard", "FOLDER", "Write event files for TensorBoard into a subfolder of FOLDER."),
        ("mlflow", "URI", "Write to the experiment ddpmon of this MLflow server or database."),
        ("wandb", "PROJECT", "Write to this project of W&B. WANDB_MODE=offline works too."),
    ):
        function = click.option(f"--{name}", metavar=metavar, callback=_place, help=text)(function)
    return function


def every(text: str, default: float, within: Within) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--every`, a number of seconds, with a help text."""
    return click.option("--every", type=within, default=default, metavar="SECONDS", show_default=True, help=text)


def lines(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--headless`, for plain lines instead of the dashboard, and `--every`, for their interval."""
    headless = click.option(
        "--headless",
        is_flag=True,
        help="Print plain lines instead of the dashboard; this is the default without a terminal.",
    )
    return headless(every("Time between two lines that --headless prints.", 5.0, Within(0.2, 86_400))(function))


def grace(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--grace`: the seconds that the ranks have to end after a stop."""
    return click.option(
        "--grace",
        type=Within(0, 86_400),
        default=20.0,
        metavar="SECONDS",
        show_default=True,
        help="Ranks that have not exited this long after a stop get SIGKILL.",
    )(function)


def _program(_context: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    """Split a command line as a shell would, and check that its program exists."""
    if value is None:
        return []
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise click.BadParameter(str(error).lower()) from None
    if not words or shutil.which(words[0]) is None:
        raise click.BadParameter(f"there is no program {words[0] if words else ''!r}")
    return words


def on_alert(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--on-alert`: the program that is run when the run needs attention."""
    return click.option(
        "--on-alert",
        cls=VariableOption,
        metavar="CMD",
        callback=_program,
        envvar="DDPMON_ON_ALERT",
        show_envvar=True,
        help="Run the program CMD when the run needs attention, stalls or fails. CMD gets the finding that "
        "caused the alert as JSON on standard input. ddpmon starts CMD at most 20 times an hour and kills "
        "it after 30 s.",
    )(function)


def root_hub(without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options `--hub` and `--hub-key`. without: help text that says what ddpmon does without `--hub`."""
    place = click.option(
        "--hub",
        envvar="DDPMON_HUB",
        show_envvar=True,
        metavar="HOST:PORT",
        help="Address of the root hub, which collects the data of all machines. All machines need the same "
        f"address for --hub. {without}",
    )
    key = click.option(
        "--hub-key",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="File with the key for --hub. All machines need the same key for --hub; `ddpmon key FILE` "
        "creates a key.  "
        "[default: the key in $DDPMON_HUB_KEY]",
    )
    return lambda function: place(key(function))


def output_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--output` with a help text."""
    file = click.Path(dir_okay=False, path_type=Path)
    text = f"{text} An existing FILE is replaced."
    return click.option("-o", "--output", type=file, metavar="FILE", help=text)


@contextlib.contextmanager
def drafted(output: Path | None) -> Iterator[Path | None]:
    """Yield the path of a draft, which replaces the requested file once it is complete; None means standard output.

    A pipe or a device is written to directly.
    """
    if output is None:
        yield None
        return
    if not output.name:
        raise UsageError("--output '': give the name of a file")
    in_place = os.path.exists(output) and not os.path.isfile(output)
    target = Path(os.path.realpath(output))  # Replace the file that a symbolic link leads to, not the link.
    draft = output if in_place else target.with_name(f"{target.name}.part")
    try:
        yield draft
        if not in_place:
            draft.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
    finally:
        if not in_place:
            with contextlib.suppress(OSError):
                draft.unlink()
