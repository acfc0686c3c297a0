"""Options for decoding, and the handling of Spark's errors, for commands that take a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import click

from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.settings import FunctionT, parsed
from kgw.pipeline.errors import OptionError
from kgw.pipeline.jobs.executors import aside
from kgw.pipeline.sql.columns import check_decoding

if TYPE_CHECKING:
    from collections.abc import Callable

ResultT = TypeVar("ResultT")

_BY_TOPIC = re.compile(r"([a-zA-Z0-9._-]+)=(.*)", re.DOTALL)


def decode_options(command: FunctionT) -> FunctionT:
    """Add --decode and --schema to a command."""
    schema = click.option(
        "--schema",
        callback=_schema,
        multiple=True,
        metavar="[TOPIC=]COLUMNS",
        help="The columns that values are decoded to, as in 'id INT, name STRING'; of every topic, "
        "or of one. Default: those of the first records.",
    )
    decode = click.option(
        "--decode",
        metavar="json",
        callback=parsed(_decoding),
        help="Make columns of the fields of values, which are JSON objects.",
    )
    return decode(schema(command))


def check_decode_options(decode: str | None, schema: object) -> None:
    """Raise UsageError for --schema without --decode, before Spark starts."""
    if schema is not None and decode is None:
        raise click.UsageError("--schema says what --decode makes of values: say --decode json")


def told_in_one_line(work: Callable[[], ResultT]) -> ResultT:
    """Run work in Spark, and return its result; an error of Spark becomes a CommandError.

    Ctrl-C ends the waiting at once, without a stack trace of Py4J; the caller stops Spark.
    """
    from pyspark.errors import PySparkException

    from kgw.pipeline.spark_errors import in_one_line, quiet

    def quietly() -> ResultT:
        with quiet():
            return work()

    try:
        return aside(quietly).result()
    except PySparkException as error:
        raise CommandError(in_one_line(error)) from None


def _decoding(text: str) -> str:
    try:
        check_decoding(text)
    except OptionError as error:
        raise ValueError(str(error)) from None
    return text


def _schema(
    _: click.Context, __: click.Parameter, texts: tuple[str, ...]
) -> str | dict[str, str] | None:
    found: dict[str, str] = {}
    for text in texts:
        match = _BY_TOPIC.fullmatch(text)
        if match is None and len(texts) > 1:
            raise click.BadParameter("of several schemas each needs its topic: TOPIC=COLUMNS")
        if match is None:
            return text
        found[match[1]] = match[2]
    return found or None
