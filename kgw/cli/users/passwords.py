"""Passwords for commands: from a file, from standard input, or asked for at the terminal.

They are no arguments: every user of a machine can read the arguments of a running command.
"""

from __future__ import annotations

import sys

import click

from kgw.cli.shared.command_config import warn_if_everybody_reads
from kgw.cli.shared.errors import CommandError, ExitCode

password_file_option = click.option(
    "--password-file",
    metavar="FILE",
    help="File with the password on its only line; - for standard input.  [default: asked for "
    "twice at the terminal]",
)


def read_password(path: str | None, *, is_json: bool) -> str:
    """Return the password. Raises CommandError or UsageError; no error text has the password."""
    if path is None:
        return _asked()
    if path == "-":
        source, content = "standard input", sys.stdin.buffer.read()
    else:
        source, content = path, _file(path, is_json=is_json)
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise CommandError(f"{source}: the password is not UTF-8", ExitCode.USAGE) from None
    if len(lines) != 1 or not lines[0]:
        raise CommandError(f"{source}: one line with the password is needed", ExitCode.USAGE)
    return lines[0]


def _file(path: str, *, is_json: bool) -> bytes:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib costs start-up time
            content = stream.read()
    except OSError as error:
        why = (error.strerror or "unknown").lower()
        raise CommandError(f"cannot read {path}: {why}", ExitCode.USAGE) from None
    warn_if_everybody_reads(path, is_json=is_json)
    return content


def _asked() -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to ask for the password: give --password-file FILE, or - for "
            "standard input"
        )
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password
