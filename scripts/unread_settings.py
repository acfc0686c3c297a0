"""Finds settings that are accepted and documented and that no code acts on.

A setting counts as read where its value decides something: where it is handed to an argument, a
field, a variable or a property of ours, that one must be read in turn. This goes by names, without
types: a name that something else has, too, and that is read there, hides a setting. What is found
is unread.

Settings that can have one value alone need no reader.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kgw.config import Setting

ROOT = Path(__file__).resolve().parent.parent

HAVE_NO_READER = {
    "listener.security.protocol.map": "takes PLAINTEXT alone, which every listener speaks anyway",
}
"""Settings that nobody needs to read, with the reason."""

# What a Config, or a function that returns it, is called where it is read; `self` is one in its own
# module.
_CONFIG_NAMES = frozenset({"config", "_config"})


class Read(NamedTuple):
    """A place where a value is taken by name."""

    name: str
    """`config.NAME` or `values[NAME]` for a setting, else a bare name, or one with its file."""
    carrier: str | None
    """What the value is handed to; None where it is acted on."""


class Reader:
    """Collects what is read in the files of a package."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._trees = {path: ast.parse(text) for path, text in sources.items()}
        self._parameters = _parameters(self._trees.values())

    def reads(self) -> Iterator[Read]:
        """Yield every read in every file."""
        for path, tree in self._trees.items():
            yield from self._visit(tree, path, None, None)

    def _visit(
        self, node: ast.AST, path: str, carrier: str | None, returns_to: str | None
    ) -> Iterator[Read]:
        """Yield what is read in a node whose value goes to a carrier."""
        for name in _names(node, path):
            yield Read(name, carrier)
        match node:
            case ast.FunctionDef():
                # Whoever reads a property reads what it returns.
                is_property = any(
                    isinstance(one, ast.Name) and one.id == "property"
                    for one in node.decorator_list
                )
                returns_to = node.name if is_property else None
            case ast.Return():
                carrier = returns_to
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                carrier = _target(target, path)
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield from self._visit(test, path, None, returns_to)
                rest = (child for child in ast.iter_child_nodes(node) if child is not test)
                for child in rest:
                    yield from self._visit(child, path, carrier, returns_to)
                return
            case ast.Call():
                yield from self._visit_call(node, path, carrier, returns_to)
                return
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, path, carrier, returns_to)

    def _visit_call(
        self, call: ast.Call, path: str, carrier: str | None, returns_to: str | None
    ) -> Iterator[Read]:
        callee = call.func
        called = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")
        ours = self._parameters.get(called, frozenset())
        for child in ast.iter_child_nodes(call):
            if isinstance(child, ast.keyword) and child.arg in ours:
                yield from self._visit(child.value, path, child.arg, returns_to)
            else:
                # What a function of ours makes of a value is not the value; what min() makes is.
                goes_on = None if called in self._parameters else carrier
                yield from self._visit(child, path, goes_on, returns_to)


def _parameters(trees: Iterable[ast.Module]) -> dict[str, frozenset[str]]:
    """Return what each function and class of ours takes by name."""
    found: dict[str, frozenset[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
                name = node.name
            elif isinstance(node, ast.ClassDef):
                taken = {
                    one.target.id
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
                for one in node.body:
                    if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                        taken |= {each.arg for each in (*one.args.args, *one.args.kwonlyargs)}
                name = node.name
            else:
                continue
            found[name] = found.get(name, frozenset()) | taken
    return found


def _names(node: ast.AST, path: str) -> Iterator[str]:
    """Yield the names under which a node reads something."""
    match node:
        case ast.Attribute(value=of, attr=attribute, ctx=ast.Load()):
            yield attribute
            of = of.func if isinstance(of, ast.Call) else of
            base = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
            if base in _CONFIG_NAMES or (base == "self" and path.endswith("config/config.py")):
                yield f"config.{attribute}"
        case ast.Name(id=name, ctx=ast.Load()):
            yield name
            yield f"{path}:{name}"
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            yield f"values[{key}]"
        case _:
            pass


def _target(target: ast.expr, path: str) -> str | None:
    match target:
        case ast.Attribute(attr=attribute):
            return attribute
        case ast.Name(id=name):
            return f"{path}:{name}"
        case _:
            return None


def names_acted_on(reads: Iterable[Read]) -> set[str]:
    """Return the names whose values get to where something is done with them."""
    pending = set(reads)
    found: set[str] = set()
    while True:
        arrived = {one for one in pending if one.carrier is None or one.carrier in found}
        if not arrived:
            return found
        found |= {one.name for one in arrived}
        pending -= arrived


def unread_settings(
    sources: Mapping[str, str], server: Iterable[Setting], topic: Iterable[Setting]
) -> list[str]:
    """Return the settings of the server and of topics that no source acts on."""
    names = names_acted_on(Reader(sources).reads())
    unread = []
    for one in topic:
        if len(one.allowed) == 1:
            continue
        if f"values[{one.name}]" in names:
            # The server settings behind it are read through it.
            names |= {f"values[{name}]" for name in (one.server_setting, *one.coarser_settings)}
        else:
            unread.append(one.name)
    unread += [
        one.name
        for one in server
        if len(one.allowed) != 1
        and one.name not in HAVE_NO_READER
        and not {f"config.{one.attribute}", f"values[{one.name}]"} & names
    ]
    return unread


def main() -> int:
    """Reports the settings that nobody reads."""
    # The checkout that this script lies in, not one that happens to be installed.
    sys.path.insert(0, str(ROOT))
    from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS

    package = ROOT / "kgw"
    sources = {
        file.relative_to(ROOT).as_posix(): file.read_text()
        for file in package.rglob("*.py")
        # What helps tests serves nobody.
        if package / "testing" not in file.parents
    }
    unread = unread_settings(sources, SERVER_SETTINGS.values(), TOPIC_SETTINGS.values())
    for name in unread:
        print(f"setting {name}: no code in kgw/ acts on its value", file=sys.stderr)
    return 1 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
