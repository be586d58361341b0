"""Hooks of hatchling: man pages in the wheel, made from the help of each command, and the README in the metadata."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_AS_IT_IS = re.compile(r"\b\n((?:[^\n]+\n?)+)".replace(r"\b", "\b"))
"""A table in a help text, below click's mark."""

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:)[^)]*\)")
_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#]*)[^)]*\)")
"""A picture, and a link, to a file of the repository."""


class Readme(MetadataHookInterface):
    """Gives the README to who installs the package, where no files lie beside it."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_files(text)}


def without_files(text: str) -> str:
    """Return Markdown that names the files of its pictures and links, and needs none of them."""
    return _LINK.sub(r"*\1* (\2)", _PICTURE.sub(r"*Picture in the repository: \1.*", text))


class ManPages(BuildHookInterface[Any]):
    """Makes them where a wheel is built for a release; an editable install has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages below build/ and name them in `build_data`."""
        if version != "standard":
            return
        folder = Path(self.root) / "build" / "man"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        write_man_pages(Path(self.root), folder)
        build_data["shared_data"] |= {str(page): f"share/man/man1/{page.name}" for page in sorted(folder.iterdir())}


def write_man_pages(root: Path, folder: Path) -> None:
    """Write a page for `ddpmon` and for each of its commands."""
    sys.path.insert(0, str(root))  # what is built, not what is installed
    from click_man.core import write_man_pages as write

    import ddpmon
    from ddpmon.cli import command_line

    pages = copy.copy(command_line)
    pages.commands = {name: each for name, each in command_line.commands.items() if not each.hidden}
    for command in (pages, *pages.commands.values()):
        text = inspect.cleandoc(command.help or "")
        command.short_help = text.strip().partition("\n")[0].strip().rstrip(".")
        # roff joins lines that do not begin with a space
        command.help = _AS_IT_IS.sub(lambda table: "\b\n" + re.sub(r"^(?=\S)", " ", table[1], flags=re.MULTILINE), text)
    write("ddpmon", pages, version=ddpmon.__version__, target_dir=str(folder))
    for page in folder.glob(
        "*.1"
    ):  # Words are neither hyphenated nor spaced out, because tables would lose their shape.
        page.write_text(re.sub(r"^(\.TH .*)", r"\1\n.nh\n.ad l", page.read_text(), count=1, flags=re.MULTILINE))
