"""The manual page kgw(1), of the tree of commands; scripts/docs.py writes it."""

from __future__ import annotations

import inspect
import re
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import click

NOTICE = '.\\" Written by scripts/docs.py from the code. Change the code, then run it.\n'
LINE_LENGTH = 72
"""Before what escaping adds."""


def man_page() -> str:
    """Return the page, in man(7)'s macros."""
    from kgw import __version__
    from kgw.cli import main
    from kgw.cli.shared.errors import ExitCode

    context = _context(main, None)
    parts = [
        NOTICE,
        # Without a date: the page is as old as the version.
        f'.TH KGW 1 "" "kgw {__version__}" "kgw"\n',
        ".SH NAME\nkgw \\- a server that Kafka clients cannot tell from a broker\n",
        ".SH SYNOPSIS\n",
        "\n.br\n".join(_synopsis(main, name) for name in main.list_commands(context)),
        "\n.SH DESCRIPTION\n",
        _paragraphs(main.help or ""),
        ".SH OPTIONS\n",
        *_options(main, context),
        ".SH COMMANDS\n",
        *_commands(main, context),
        ".SH ENVIRONMENT\n",
        *_environment(main, context),
        _entry(
            "KGW_...",
            "Every setting of the server has a variable of its own;\n"
            "\\fBkgw config list\\fR and \\fBkgw serve \\-\\-print\\-config\\fR show the settings.",
        ),
        ".SH EXIT STATUS\n",
        *(_entry(str(code.value), escaped(code.meaning)) for code in ExitCode),
        ".SH EXAMPLES\n",
        _example("Serve on 127.0.0.1:9092 with the data in ./kgw-data:", "kgw serve"),
        ".PP\n",
        _example(
            "Create a topic, write a record and read it:",
            "kgw topics create greetings --partitions 3",
            "echo hello | kgw produce greetings",
            "kgw consume greetings",
        ),
    ]
    return "".join(parts)


def escaped(text: str) -> str:
    """Return text as roff reads it back: hyphens that can be copied, no requests, no escapes."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in {".", "'"} else line for line in text.split("\n"))


def filled(text: str) -> str:
    """Return a paragraph, escaped, in lines that a person can look at."""
    words = " ".join(text.split())
    return escaped(fill(words, LINE_LENGTH, break_long_words=False, break_on_hyphens=False))


def _context(command: click.Command, parent: click.Context | None) -> click.Context:
    import click

    name = "kgw" if parent is None else command.name
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


def _paragraphs(text: str) -> str:
    r"""Return a help text. Paragraphs that begin with `\b` keep their lines, as click has it."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if lines:
            lines.append(".PP")
        if paragraph.startswith("\b"):
            kept = escaped(paragraph.removeprefix("\b").strip("\n"))
            lines += [".nf", kept, ".fi"]
        else:
            lines.append(filled(paragraph))
    return "\n".join(lines) + "\n"


def _entry(term: str, text: str) -> str:
    return f".TP\n\\fB{term}\\fR\n{text}\n"


def _example(what: str, *commands: str) -> str:
    lines = "\n".join(escaped(command) for command in commands)
    return f"{escaped(what)}\n.RS 4\n.nf\n{lines}\n.fi\n.RE\n"


def _synopsis(main: click.Group, name: str) -> str:
    import click

    command = main.get_command(_context(main, None), name)
    rest = "COMMAND ..." if isinstance(command, click.Group) else "[OPTION]... [ARGUMENT]..."
    return f"\\fBkgw {escaped(name)}\\fR {escaped(rest)}"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield _entry(escaped(record[0]), filled(record[1]))


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    import click

    for child, below in _children(group, context):
        yield f".SS {escaped(_usage(child, below))}\n{_paragraphs(child.help or '')}"
        if isinstance(child, click.Group):
            yield from _commands(child, below)
        else:
            yield from _options(child, below)


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _children(
    group: click.Group, context: click.Context
) -> Iterable[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        child = group.get_command(context, name)
        if child is not None and not child.hidden:
            yield child, _context(child, context)


def _environment(main: click.Group, context: click.Context) -> Iterator[str]:
    """Each variable that an option is taken from, once."""
    import click

    found: dict[str, str] = {}

    def look(group: click.Group, context: click.Context) -> None:
        for child, below in _children(group, context):
            for one in child.params:
                if isinstance(one, click.Option) and isinstance(one.envvar, str):
                    found.setdefault(one.envvar, one.help or "")
            if isinstance(child, click.Group):
                look(child, below)

    look(main, context)
    for name, text in sorted(found.items()):
        yield _entry(escaped(name), filled(text))
