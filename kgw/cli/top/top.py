"""`kgw top`: a live view of one server in a terminal."""

from __future__ import annotations

import sys
import time
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from kgw.cli.shared.admin_http import admin_option
from kgw.cli.shared.command_config import command_config_option, given_security
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.output import print_json_line
from kgw.cli.shared.settings import NumberRange, json_option
from kgw.cli.top.asking import REST, Asker
from kgw.cli.top.figures import Watch
from kgw.cli.top.screen import Screen, snapshot_of
from kgw.config.listeners import format_address
from kgw.terminals import is_dumb

if TYPE_CHECKING:
    from kgw.cli.shared.admin_http import Address
    from kgw.cli.top.figures import Sample

DEFAULT_ADMIN = "127.0.0.1:9644"
SNAPSHOT_ROWS = 20


@click.command(
    short_help="Watch a server.", context_settings={"default_map": {"admin": DEFAULT_ADMIN}}
)
@admin_option
@command_config_option
@click.option(
    "--interval",
    "interval_s",
    type=NumberRange(min=0.2, max=3_600),
    default=2.0,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Print one snapshot, with the rates of one interval. So it is without a terminal, too.",
)
@json_option("Print an object each interval, on a line of its own.")
def top(admin: Address, interval_s: float, once: bool, is_json: bool) -> None:
    """Show a server live: requests, topics, partitions, groups, and what is wrong.

    It asks the admin side, 127.0.0.1:9644 unless --admin names another. A server has one when it is
    started with kgw.admin.listeners. The keys are explained by h, q quits.
    """
    can_draw = sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb()
    once = once or not (is_json or can_draw)
    given_security()
    # For a single snapshot, ask for partitions twice at once: rates need both.
    asker = Asker(admin, rest=0 if once else REST)
    try:
        first = asker.sample()
    except CommandError as error:
        raise _with_advice(error) from None
    where = format_address(*admin[:2])
    if is_json or once:
        _print(asker, first, where, interval_s, once=once, is_json=is_json)
        return
    try:
        from kgw.cli.top.terminal import show
    except ImportError:
        raise CommandError("this Python has no curses: use --once or --json") from None
    show(asker, first, Screen(where, interval_s))


def _print(
    asker: Asker, first: Sample, where: str, interval_s: float, *, once: bool, is_json: bool
) -> None:
    watch = Watch()
    watch.take(first)
    while True:
        time.sleep(interval_s)
        try:
            figures = watch.take(asker.sample())
        except CommandError as error:
            if once:
                raise
            print_json_line({"time_ms": time.time_ns() // 1_000_000, "error": error.message})
            continue
        if is_json:
            print_json_line(figures._asdict())
            sys.stdout.flush()
        else:
            width = max(80, get_terminal_size((120, 24)).columns)
            for line in snapshot_of(Screen(where, interval_s), figures, width, SNAPSHOT_ROWS):
                click.echo(line.text)
        if once:
            return


def _with_advice(error: CommandError) -> CommandError:
    if error.code is not ExitCode.CANNOT_CONNECT:
        return error
    return CommandError(
        f"{error.message}; start the server with "
        f"`kgw serve --set kgw.admin.listeners={DEFAULT_ADMIN}`, or say with --admin where its "
        "admin side is",
        error.code,
    )
