"""The scripts that shells run when TAB is pressed; `kgw completion` prints them.

A shell runs kgw each time, with `_KGW_COMPLETE` set. This module is imported only then.
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
"""The environment variable from which click takes the task: `bash_source`, `bash_complete` and so
on."""

_CURSOR = "\0"
"""Put after the line to tell a word that ends at the cursor from a space before the cursor."""

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
    """Adds kgw's suggestions for options and arguments to click's."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        teach(self.cli, args)
        return super().get_completions(args, incomplete)


class Bash(_Taught):
    """Splits the line itself: bash splits words at `:` and `=`, too, and `-b HOST:PORT` has both.

    click's own class takes bash's words, and would ask another server.
    """

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        # COMP_POINT counts bytes.
        line = os.environb[b"COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(os.fsdecode(line) + _CURSOR)
        incomplete = words.pop().removesuffix(_CURSOR)
        self._kept = kept(incomplete, os.environ.get("COMP_WORDBREAKS", ""))
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{item.value.removeprefix(self._kept)}"


def kept(incomplete: str, word_breaks: str) -> str:
    """Return the part of a value that bash keeps: up to the last character that splits words."""
    value = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
    return value[: 1 + max((value.rfind(sign) for sign in ":=" if sign in word_breaks), default=-1)]


class Zsh(_Taught, ZshComplete):
    """click's own class, with kgw's suggestions."""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return super().format_completion(_whole(item))


class Fish(_Taught, FishComplete):
    """click's own class, with kgw's suggestions."""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return super().format_completion(_whole(item))


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    """Register these classes with click, which reads `_KGW_COMPLETE`."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def script(command: click.Command, shell: str) -> str:
    """Return the script that a shell must read once."""
    return SHELLS[shell](command, {}, "kgw", VARIABLE).source()


def _whole(item: CompletionItem[str]) -> CompletionItem[str]:
    """Return an item of the types that click's scripts know."""
    kind = "plain" if item.type == BEGINNING else item.type
    return CompletionItem(item.value, type=kind, help=item.help)
