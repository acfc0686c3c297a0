"""The exit codes and errors of commands."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

import click


class ExitCode(IntEnum):
    """Exit codes of every command, as `kgw --help` prints them."""

    meaning: str

    OK = 0, "success"
    FAILED = 1, "the operation failed, or problems were found"
    USAGE = 2, "wrong usage or configuration"
    CANNOT_CONNECT = 3, "no Kafka server could be reached"
    DATA_DIRECTORY = 4, "the data directory cannot be used"
    CANNOT_LISTEN = 5, "an address cannot be listened on"
    DAMAGED = 6, "done, but for damaged records that were skipped"
    INTERRUPTED = 130, "interrupted by Ctrl-C"
    CLOSED_PIPE = 141, "the reader of the output went away"

    def __new__(cls, value: int, meaning: str) -> Self:
        """Make an exit code with its meaning as an attribute."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class CommandError(click.ClickException):
    """A failure that is printed in one line, with its exit code."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode = ExitCode.FAILED,
        *,
        kafka_error: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = exit_code
        self.kafka_error = kafka_error
        """The name of the error code in the server's response, if there was one."""
