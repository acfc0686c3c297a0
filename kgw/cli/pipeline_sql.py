"""`kgw pipeline sql`: a query over what an archive has and what came since."""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.client import Bootstrap, client_options
from kgw.cli.errors import CommandError
from kgw.cli.output import note, print_columns, print_json, text_of
from kgw.cli.pipeline_archives import archive_option
from kgw.cli.pipeline_queries import decode_options, told_in_one_line
from kgw.cli.pipeline_spark import SparkWhenNeeded, spark_options

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from uuid import UUID

    from pyspark.sql import DataFrame

    from kgw.pipeline.master import Master
    from kgw.pipeline.sql.snapshot import Snapshot


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
    show_default=True,
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

    A table has what is archived, and from there on what the server has, up to where the topic
    ended when the query was planned: each record once, whatever is produced, archived or merged
    meanwhile. Names with other than letters, digits and _ stand in backquotes.

    Columns are key and value, or what --decode makes of the value. Besides there are _index (the
    offset), _ts, _ts_ns, _key, _value, _partition, _headers and _source (archive or log), and with
    --decode _error; a query may name them anywhere, and select * does not show them.
    """
    address = ",".join(f"{host}:{port}" for host, port in bootstrap) if has_tail else None
    with SparkWhenNeeded("kgw pipeline sql", master) as spark:
        session = spark.session
        from kgw.pipeline.sql.tables import tables

        opened = tables(
            session, address, archive=root, topic_ids=topic_ids, decode=decode, schema=schema
        )
        with told_in_one_line():
            opened.session.conf.set("spark.sql.session.timeZone", "UTC")
            frame = opened.sql(query)
            names = frame.columns
            if isinstance(schema, dict) and (unused := sorted(schema.keys() - opened.snapshots)):
                raise CommandError(f"--schema names topic {unused[0]}, and the query does not")
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise CommandError(f"several columns are called {twice[0]}: name one by `as`")
            rows = _rows(frame, limit + 1)
        is_cut = len(rows) > limit
        rows = rows[:limit]
        types = [field.dataType.simpleString() for field in frame.schema.fields]
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
    print_columns(names, [[_cell(row[place]) for row in rows] for place in range(len(names))])
    for text in opened.notes:
        note(text)
    if is_cut:
        note(f"There are more rows than these {limit}; --limit says how many are printed.")


def _rows(frame: DataFrame, limit: int) -> list[list[Any]]:
    """Return rows in JSON's types."""
    from pyspark.sql.functions import col
    from pyspark.sql.types import TimestampType

    # As text: Python has no years above 9999.
    fields = frame.schema.fields
    unique = frame.toDF(*(f"_{place}" for place in range(len(fields))))
    is_time = [isinstance(field.dataType, TimestampType) for field in fields]
    columns = [
        col(f"_{place}").cast("string") if one else col(f"_{place}")
        for place, one in enumerate(is_time)
    ]
    return [
        [
            f"{value.replace(' ', 'T')}Z" if one and value is not None else _plain(value)
            for value, one in zip(row, is_time, strict=True)
        ]
        for row in unique.select(*columns).limit(limit).collect()
    ]


def _plain(value: Any) -> Any:
    """Return a value of Spark in JSON's types; bytes that are no text as an object with base64."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode("ascii")}
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value)


def _cell(value: Any) -> str:
    from json import dumps

    return text_of(dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value)


def _table(snapshot: Snapshot) -> dict[str, Any]:
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


def _partitions(snapshot: Snapshot) -> Iterable[dict[str, int]]:
    return [
        {
            "partition": one.partition,
            "start_offset": one.start,
            "archived_end_offset": one.cut,
            "end_offset": one.end,
        }
        for one in snapshot.extents
    ]
