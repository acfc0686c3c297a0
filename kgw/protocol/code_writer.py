"""Collects the lines of one generated function, for decoders and encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class CodeWriter:
    """The lines of a function for one version of a message, and the objects that the code uses."""

    def __init__(self, version: int, *, flexible: bool, **namespace: Any) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.namespace: dict[str, Any] = namespace

    def compile(self, name: str, source: str) -> Callable[..., Any]:
        """Return the function of this name in the source."""
        exec(source, self.namespace)  # noqa: S102 - the text is made of declared names and numbers
        function: Callable[..., Any] = self.namespace[name]
        return function

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}_{self.names}"

    def _constant(self, prefix: str, value: object) -> str:
        name = self._name(prefix)
        self.namespace[name] = value
        return name
