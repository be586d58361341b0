"""ddpmon help: pages of the documentation in the terminal."""

from __future__ import annotations

import click


def _complete(_context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    from ddpmon.cli.topics import topics

    return sorted(name for name in topics() if name.startswith(begun))


@click.command(name="help")
@click.argument("topic", required=False, shell_complete=_complete)
@click.pass_context
def help_page(context: click.Context, topic: str | None) -> None:
    """Explain TOPIC: a task, a kind of finding, a word, or a command.

    \b
    ddpmon help               list the tasks and the kinds of findings
    ddpmon help straggler     how to find a straggler
    ddpmon help rank_slow     what this finding means and what to do
    ddpmon help excess        what this word means
    ddpmon help run           the options of this command
    """
    import shutil
    from difflib import get_close_matches

    from ddpmon.cli.topics import for_terminal, listed, topics
    from ddpmon.errors import UsageError

    pages = topics()
    width = min(100, shutil.get_terminal_size().columns)
    if topic is None:
        print("\n".join(listed(pages, width)))
        return
    group = context.parent.command if context.parent else None
    if isinstance(group, click.Group) and (command := group.commands.get(topic)):
        print(command.get_help(click.Context(command, info_name=topic, parent=context.parent)))
    elif topic in pages:
        print("\n".join(for_terminal(pages[topic].text, width)))
    else:
        near = get_close_matches(topic, pages, 1)
        raise UsageError(f"no topic {topic!r}{f'; did you mean {near[0]!r}?' if near else ''}; ddpmon help lists them")
