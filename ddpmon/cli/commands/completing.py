"""ddpmon completion: lets the shell complete commands, options and the names of runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from ddpmon.errors import UsageError

_SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.option("--print", "printed", is_flag=True, help="Print the completion script instead of installing it.")
def completion(shell: str | None, printed: bool) -> int:
    """Install shell completion for commands, options and run names.

    SHELL is bash, fish or zsh; the default is your shell. The command writes one file to the shell's folder for
    completions. Delete that file to uninstall the completion. For zsh the command also prints the line to add to
    ~/.zshrc. Open a new shell to use the completion.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in _SHELLS:
        raise UsageError(
            f"completion: $SHELL is {chosen or 'not set'}, which has no completion; give one of these shells: "
            f"{', '.join(_SHELLS)}"
        )
    kind = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}[chosen]
    commands = click.get_current_context().find_root().command
    source = kind(commands, {}, "ddpmon", "_DDPMON_COMPLETE").source()
    if printed:
        print(source)
        return 0
    path = place(chosen, os.environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    except OSError as error:
        raise UsageError(
            f"completion: cannot write {path}: {error.strerror}; --print prints the script, so that you "
            "can store it elsewhere"
        ) from None
    print(f"installed {path}; open a new {chosen} to use the completion")
    if chosen == "zsh":
        print(f"if zsh completes nothing, add fpath+=({path.parent}) to ~/.zshrc, before compinit")
    return 0


def place(shell: str, environ: Mapping[str, str]) -> Path:
    """Return the file in which a shell looks for a user's completions of ddpmon.

    The paths are those that bash-completion 2.12, fish 4.0 and zsh 5.9 document.
    """
    data = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    if shell == "bash":
        return Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion") / "completions" / "ddpmon"
    if shell == "fish":
        return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fish/completions/ddpmon.fish"
    return data / "zsh/site-functions/_ddpmon"
