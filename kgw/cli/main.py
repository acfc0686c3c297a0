"""The root of the command line. The module of a command is imported only when the command is used.

`kgw serve` must answer its first request within 300 ms, so it does not import the client.
"""

from __future__ import annotations

import sys
from os import environ
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.errors import DataDirectoryError, KgwError, ListenError
from kgw.interrupts import EndedByInterrupts, InterruptedByTermination
from kgw.terminals import has_colours
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COMMANDS = {
    "serve": "kgw.cli.serve:serve",
    "topics": "kgw.cli.topics.topics:topics",
    "produce": "kgw.cli.topics.produce:produce",
    "consume": "kgw.cli.topics.consume:consume",
    "groups": "kgw.cli.groups.groups:groups",
    "offsets": "kgw.cli.groups.offsets:offsets",
    "transactions": "kgw.cli.topics.transactions:transactions",
    "producers": "kgw.cli.topics.producers:producers",
    "users": "kgw.cli.users.users:users",
    "acls": "kgw.cli.acls.acls:acls",
    "tokens": "kgw.cli.tokens.tokens:tokens",
    "migrate": "kgw.cli.groups.migrate:migrate",
    "config": "kgw.cli.config:config",
    "log": "kgw.cli.storage.log:log",
    "state": "kgw.cli.storage.state:state",
    "backup": "kgw.cli.storage.backup:backup",
    "restore": "kgw.cli.storage.backup:restore",
    "pipeline": "kgw.cli.pipeline.pipeline:pipeline",
    "doctor": "kgw.cli.doctor.doctor:doctor",
    "top": "kgw.cli.top.top:top",
    "completion": "kgw.cli.completion.completion:completion",
}
"""For each command its module and attribute, in the order of `kgw --help`."""

EXTRAS = {
    **dict.fromkeys(("numpy", "pyarrow", "pyspark"), "spark"),
    **dict.fromkeys(("grpc", "google", "aiohttp"), "seaweedmq"),
    **dict.fromkeys(("cryptography", "re2"), "tls"),
    "jwt": "oauth",
}
"""The extra of kgw that has each optional module; commands may fail to import these modules."""

_NAMING = frozenset({"--bootstrap", "--group", "--ledger-topic", "--protect-group", "--topic"})
"""Options whose value names a server, a topic or a group; so do the values of all arguments."""

EPILOG = "Exit codes: " + "; ".join(f"{code.value} {code.meaning}" for code in ExitCode) + "."


class LazyGroup(click.Group):
    """A click group that imports a command when it is used."""

    places: Mapping[str, str] = {}
    """For each command `module:attribute`, in the order of --help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.places.get(cmd_name)
        if place is None:
            return None
        from importlib import import_module

        module_name, _, attribute = place.partition(":")
        # The help of every command works: modules of commands import no extra at their top.
        with EndedByInterrupts():
            command: click.Command = getattr(import_module(module_name), attribute)
        _refuse_empty_names(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names.

        For a mistyped name, click's error suggests the nearest names of all commands.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.places, ctx=ctx
            ) from None


class RootGroup(LazyGroup):
    """The root command: prints every failure in one line, and exits with its code."""

    places = COMMANDS

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and exit with its code.

        If `standalone_mode` is off, return the result or raise the error.
        """
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        if "_KGW_COMPLETE" in environ:
            # When a shell asks for suggestions, click uses these classes.
            from kgw.cli.completion.shells import register

            register()
        arguments = list(sys.argv[1:] if args is None else args)
        is_json = "--json" in arguments
        # With None, click itself checks whether the output is a terminal.
        color = None if has_colours() else False
        try:
            result = super().main(
                arguments, prog_name, complete_var, standalone_mode=False, color=color, **extra
            )
            code = result if isinstance(result, int) else 0
        except click.ClickException as error:
            code = _report(error, is_json=is_json, color=color)
        except click.Abort:
            code = ExitCode.INTERRUPTED
        sys.exit(int(code))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn kgw's errors into click's, and end silently at a closed pipe."""
        with InterruptedByTermination():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            # Flush now, so that a closed pipe is noticed here and not when the interpreter ends.
            sys.stdout.flush()
        except BrokenPipeError:
            _abandon_stdout()
            raise click.exceptions.Exit(ExitCode.CLOSED_PIPE) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
        except ModuleNotFoundError as error:
            extra = _extra_of(error)
            if extra is None:
                raise
            from kgw.version import install_command

            raise CommandError(
                f"this command needs the package {error.name}: {install_command(extra)}"
            ) from None
        except KgwError as error:
            raise CommandError(printable(str(error)), _exit_code(error)) from None
        return result


class _NotEmpty:
    """A callback that refuses "" for an argument or option that names something."""

    def __init__(self, then: Callable[[click.Context, click.Parameter, Any], Any] | None) -> None:
        self._then = then

    def __call__(self, ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise click.BadParameter("it cannot be empty", ctx, param)
        return value if self._then is None else self._then(ctx, param, value)


def _refuse_empty_names(command: click.Command) -> None:
    """Make a command and its subcommands refuse "" as the name of a topic, group and so on.

    Otherwise a script with an unset variable would send "" to the server.
    """
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _refuse_empty_names(below)
    for param in command.params:
        is_name = isinstance(param, click.Argument) or (
            param.type is click.STRING and not _NAMING.isdisjoint(param.opts)
        )
        if is_name and not isinstance(param.callback, _NotEmpty):
            param.callback = _NotEmpty(param.callback)


def _extra_of(error: ModuleNotFoundError) -> str | None:
    """Return the extra of kgw that has the missing package; None if no extra has it."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from kgw.version import full_version

        click.echo(f"kgw {full_version()}")
        ctx.exit()


@click.group(
    cls=RootGroup,
    epilog=EPILOG,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the commit and exit.",
)
def main() -> None:
    """Serve Kafka clients, and look after the data that they store.

    Commands that talk to a server take --bootstrap HOST:PORT (default 127.0.0.1:9092, or the
    environment variable KGW_BOOTSTRAP), and for TLS and a login --command-config FILE (or
    KGW_COMMAND_CONFIG), with properties of Kafka's clients. With --json the result is JSON on
    standard output, and an error a JSON object on standard error.
    """


def _exit_code(error: KgwError) -> ExitCode:
    from kgw.config import ConfigError

    if isinstance(error, ConfigError):
        return ExitCode.USAGE
    if isinstance(error, DataDirectoryError):
        return ExitCode.DATA_DIRECTORY
    if isinstance(error, ListenError):
        return ExitCode.CANNOT_LISTEN
    # If the client was never imported, the error cannot be one of its errors.
    client_errors = sys.modules.get("kgw.client.errors")
    if client_errors is not None and isinstance(
        error,
        (client_errors.CannotConnectError, client_errors.NotKafkaError, client_errors.TlsError),
    ):
        return ExitCode.CANNOT_CONNECT
    return ExitCode.FAILED


_KAFKAS = {
    "--config": "--set",
    "--from-beginning": "--from earliest",
    "--allow-principal": "--allow",
    "--deny-principal": "--deny",
    "--allow-host": "--host",
    "--deny-host": "--host",
    "--user-principal": "--user",
    "--owner-principal": "--owner",
    "--renewer-principal": "--renewer",
    "--max-life-time-period": "--max-lifetime",
    "--renew-time-period": "--period",
    "--expiry-time-period": "--after",
    "--resource-pattern-type": "--pattern",
    "--force": "--yes",
}
"""Options of Kafka's tools, and the options of kgw that replace them."""


def _meant_by(error: click.NoSuchOption, ctx: click.Context) -> str | None:
    """Return kgw's form of an option that was written as in Kafka's tools; None if unknown."""
    command, word = ctx.command, error.option_name.removeprefix("--")
    if isinstance(command, click.Group):
        return f"{ctx.command_path} {word}" if word in command.list_commands(ctx) else None
    for param in command.params:
        if isinstance(param, click.Argument) and word == param.name:
            return f"{ctx.command_path} {word.upper()}"
        kafkas = _KAFKAS.get(error.option_name, "")
        if kafkas.partition(" ")[0] in param.opts:
            return kafkas
    return None


def _report(error: click.ClickException, *, is_json: bool, color: bool | None) -> int:
    """Print a failure in one line and return its exit code."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        meant = _meant_by(error, error.ctx)
        if meant is not None:
            said = f"No such option {error.option_name!r}. Did you mean {meant!r}?"
            error = click.NoSuchOption(error.option_name, said, ctx=error.ctx)
    # The message may contain text from a server: remove control characters, which a terminal obeys.
    message = printable(" ".join(error.format_message().split()))
    code = error.code if isinstance(error, CommandError) else error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    if isinstance(error, click.UsageError) and error.ctx is not None:
        # Take click's hint out of its brackets, as one more hint is added below.
        said, hint, suggested = message.rstrip(".").partition(". (Did you mean")
        if hint:
            message = f"{said}. Did you mean{suggested.removesuffix(')')}"
        message = f"{message.rstrip('.')} (see {error.ctx.command_path} --help)"
    if message and not isinstance(error, CommandError):
        message = message[0].lower() + message[1:]
    if is_json:
        from json import dumps

        told: dict[str, object] = {"error": message, "exit_code": int(code)}
        if isinstance(error, CommandError) and error.kafka_error:
            told["kafka_error"] = error.kafka_error
        click.echo(dumps(told), err=True)
    else:
        click.echo(f"{click.style('error:', fg='red')} {message}", err=True, color=color)
    return code


def _abandon_stdout() -> None:
    """Discard buffered output, so that the interpreter's last flush does not fail."""
    import os

    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
