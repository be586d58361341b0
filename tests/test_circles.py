"""No files of ddpmon import each other in a circle: each can be read, moved and tested without those that use it.

Every import counts: one inside a function, one for the type checker alone, one by name through importlib.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def modules(root: Path, package: str) -> dict[str, Path]:
    """Every module of a package by its name."""
    named = {}
    for path in (root / package).rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports(module: str, path: Path, every: Collection[str]) -> set[str]:
    """Return the modules of `every` that a module imports. The packages above those do not count."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    wanted = {name for node in ast.walk(ast.parse(path.read_text())) for name in _names(node, package)}
    return {next((its for its in _prefixes(name) if its in every), module) for name in wanted} - {module}


def _names(node: ast.AST, package: str) -> Iterator[str]:
    """Yield what a statement or a call imports, with the imported name: as "package.module.name"."""
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case ast.ImportFrom(module=source, names=names, level=level):
            above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            yield from (".".join([*above, *([source] if source else []), name.name]) for name in names)
        case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[first, *_]):
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _prefixes(name: str) -> Iterator[str]:
    """a.b.c, a.b, a"""
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def circles(arrows: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules in which each can be reached from each other."""
    reached = {module: _reached(module, arrows) for module in arrows}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in arrows
        if module in reached[module]
    }


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = set(arrows[start])
    while ahead:
        module = ahead.pop()
        reached.add(module)
        ahead |= arrows[module] - reached
    return reached


def arrows_of(root: Path, package: str) -> dict[str, set[str]]:
    """Each module of a package: those of the package that it imports."""
    named = modules(root, package)
    return {module: imports(module, path, named.keys()) for module, path in named.items()}


def test_no_files_import_each_other_in_a_circle():
    arrows = arrows_of(ROOT, "ddpmon")
    assert len(arrows) > 100
    closed = circles(arrows)
    assert not closed, "\n".join(
        f"{module} imports {', '.join(sorted(arrows[module] & circle))}"
        for circle in closed
        for module in sorted(circle)
    )


def test_what_a_script_calls_knows_nobody():
    assert not arrows_of(ROOT, "ddpmon")["ddpmon.api"]
