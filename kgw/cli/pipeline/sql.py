"""`kgw pipeline sql`: runs a query over an archive and the newer records of its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.pipeline.archives import archive_option
from kgw.cli.pipeline.clusters import address_of
from kgw.cli.pipeline.queries import check_decode_options, decode_options, told_in_one_line
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.shared.client import Bootstrap, client_options
from kgw.cli.shared.command_config import given_properties
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, print_columns, print_json, text_of
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from uuid import UUID

    from pyspark.sql.types import StructType

    from kgw.pipeline.master import Master
    from kgw.pipeline.sql.snapshot import TableSnapshot
    from kgw.pipeline.sql.tables import Tables


@click.command(short_help="Query archives and topics.")
@click.argument("query")
@archive_option("root", is_required=False, what="The archive; without one topics are read alone.")
@click.option(
    "--topic-id",
    "topic_ids",
    type=click.UUID,
    multiple=True,
    metavar="UUID",
    help="Which life of a topic, where the archive has several or the server has another.",
)
@decode_options
@click.option(
    "--tail/--no-tail",
    "has_tail",
    default=True,
    help="Whether rows that are not archived yet are read from the server.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    metavar="ROWS",
    help="How many rows are printed at most.",
)
@spark_options
@client_options
def sql(
    *,
    query: str,
    root: Path | None,
    topic_ids: tuple[UUID, ...],
    decode: str | None,
    schema: str | dict[str, str] | None,
    has_tail: bool,
    limit: int,
    master: Master,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Run a query of Spark's SQL. Topics are tables: `select count(*) from orders`.

    A table has the archived records, and then the server's records up to the topic's end when the
    query was planned: each record once, whatever is produced, archived or merged meanwhile. Quote
    names with other characters than letters, digits and _ in backquotes.

    Columns are key and value, or with --decode the fields of the value. There are also _index (the
    offset), _ts, _ts_ns, _key, _value, _partition, _headers and _source (archive or log), and with
    --decode _error; a query may name them anywhere, and select * does not show them.
    """
    check_decode_options(decode, schema)
    if root is None and not has_tail:
        raise click.UsageError("--no-tail leaves nothing to query without --archive")
    if root is None and topic_ids:
        raise click.UsageError("--topic-id is for --archive")
    address = address_of(bootstrap) if has_tail else None
    properties = given_properties() if has_tail else None
    with SparkWhenNeeded("kgw pipeline sql", master) as spark:
        session = spark.session
        from kgw.pipeline.sql.tables import tables

        def ask() -> tuple[Tables, StructType, list[list[Any]]]:
            opened = tables(
                session,
                address,
                properties=properties,
                archive=root,
                topic_ids=topic_ids,
                decode=decode,
                schema=schema,
            )
            return (opened, *_answer(opened, query, schema, limit + 1))

        opened, fields, rows = told_in_one_line(ask)
    names = fields.names
    is_cut = len(rows) > limit
    rows = rows[:limit]
    types = [field.dataType.simpleString() for field in fields]
    if is_json:
        print_json(
            {
                "columns": [
                    {"name": name, "type": of} for name, of in zip(names, types, strict=True)
                ],
                "rows": [dict(zip(names, row, strict=True)) for row in rows],
                "is_cut": is_cut,
                "tables": [_table(one) for one in opened.snapshots.values()],
                "notes": opened.notes,
            }
        )
        return
    # Names and messages may contain text from records.
    print_columns(
        list(map(text_of, names)),
        [[_cell(row[place]) for row in rows] for place in range(len(names))],
    )
    for text in opened.notes:
        note(printable(text))
    if is_cut:
        note(f"There are more rows than these {limit}; --limit says how many are printed.")


def _answer(
    opened: Tables, query: str, schema: str | dict[str, str] | None, limit: int
) -> tuple[StructType, list[list[Any]]]:
    """Return the columns and the first rows of a query's result.

    Raises CommandError, and the errors of `Tables.sql`.
    """
    from kgw.pipeline.sql.rows import rows_of

    opened.session.conf.set("spark.sql.session.timeZone", "UTC")
    frame = opened.sql(query)
    names = frame.columns
    if isinstance(schema, dict) and (unused := sorted(schema.keys() - opened.snapshots)):
        raise CommandError(f"--schema names topic {unused[0]}, and the query does not")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CommandError(f"several columns are called {twice[0]}: name one by `as`")
    return frame.schema, rows_of(frame, limit)


def _cell(value: Any) -> str:
    from json import dumps

    return text_of(dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value)


def _table(snapshot: TableSnapshot) -> dict[str, Any]:
    return {
        "topic": snapshot.topic,
        "topic_id": str(snapshot.topic_id),
        "has_tail": snapshot.is_on_server,
        "partitions": _partitions(snapshot),
        "holes": [
            {
                "partition": one.partition,
                "first_offset": one.first,
                "last_offset": one.last,
                "reason": one.reason,
            }
            for one in snapshot.holes
        ],
    }


def _partitions(snapshot: TableSnapshot) -> Iterable[dict[str, int]]:
    return [
        {
            "partition": one.partition,
            "start_offset": one.start,
            "archived_end_offset": one.cut,
            "end_offset": one.end,
        }
        for one in snapshot.extents
    ]
