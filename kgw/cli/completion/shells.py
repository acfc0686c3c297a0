"""The completion scripts of bash, zsh and fish, which `kgw completion` prints.

When TAB is pressed, the script runs kgw with `_KGW_COMPLETE` set. This module is imported only for
completion.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from kgw.cli.completion.suggestions import BEGINNING, teach

if TYPE_CHECKING:
    import click

VARIABLE = "_KGW_COMPLETE"
"""The environment variable that tells click what to do: `bash_source`, `bash_complete` and so
on."""

_CURSOR = "\0"
"""Appended to the line, so that a word before the cursor differs from a space before it."""

_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            beginning) COMPREPLY+=("$value") && compopt -o nospace ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE=$COMP_LINE COMP_POINT=$COMP_POINT COMP_WORDBREAKS=$COMP_WORDBREAKS \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Taught(ShellComplete):
    """A shell class of click that also suggests kgw's options and arguments."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        teach(self.cli, args)
        return super().get_completions(args, incomplete)


class Bash(_Taught):
    """Splits the command line itself: bash also splits words at `:` and `=`, as in HOST:PORT.

    click's own class uses bash's words, and would ask the wrong server.
    """

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        # COMP_POINT counts bytes, not characters.
        line = os.environb[b"COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(os.fsdecode(line) + _CURSOR)
        incomplete = words.pop().removesuffix(_CURSOR)
        self._kept = kept(incomplete, os.environ.get("COMP_WORDBREAKS", ""))
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{item.value.removeprefix(self._kept)}"


def kept(incomplete: str, word_breaks: str) -> str:
    """Return the part of a word that bash does not replace: up to its last word break."""
    value = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
    return value[: 1 + max((value.rfind(sign) for sign in ":=" if sign in word_breaks), default=-1)]


class Zsh(_Taught, ZshComplete):
    """click's class for zsh, with kgw's suggestions."""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return super().format_completion(_whole(item))


class Fish(_Taught, FishComplete):
    """click's class for fish, with kgw's suggestions."""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return super().format_completion(_whole(item))


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    """Register these classes with click, which reads `_KGW_COMPLETE`."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def script(command: click.Command, shell: str) -> str:
    """Return the completion script that a shell loads at its start."""
    return SHELLS[shell](command, {}, "kgw", VARIABLE).source()


def _whole(item: CompletionItem[str]) -> CompletionItem[str]:
    """Return an item with a type that click's scripts for zsh and fish know."""
    kind = "plain" if item.type == BEGINNING else item.type
    return CompletionItem(item.value, type=kind, help=item.help)
