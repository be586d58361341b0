"""Add the pictures of screenshots/ to the site: a hook of mkdocs.

Pages link to ../screenshots, so that they also show their pictures where a repository is browsed.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pictures, and the page that shows all of them."""
    for path in (*(ROOT / "screenshots").glob("*.svg"), ROOT / "screenshots" / "README.md"):
        files.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to pictures at their place in the site, one folder closer."""
    return markdown.replace("../screenshots/", "screenshots/")
