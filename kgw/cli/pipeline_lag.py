"""`kgw pipeline lag`: how far groups are behind, and archives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.client import Bootstrap, client_options, with_client
from kgw.cli.errors import CommandError, ExitCode
from kgw.cli.output import print_json, print_json_line, print_rows
from kgw.cli.pipeline_archives import archive_option, chosen_topics
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.lag import ArchiveLag, archive_lags

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.client import AsyncClient


@click.command(short_help="Show how far groups are behind, or an archive.")
@click.option("-g", "--group", "groups", multiple=True, metavar="GROUP", help="Only this group.")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic.")
@archive_option(
    "archive", is_required=False, what="Show how far this archive is behind, and no groups."
)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Exit with 1 when something is marked.",
)
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Show it again every so often, until Ctrl-C.",
)
@client_options
@click.pass_context
def lag(
    ctx: click.Context,
    *,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    archive: Path | None,
    is_check: bool,
    watch_s: float | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Show how far groups are behind in each partition, or an archive. Spark is not needed.

    Of groups it is `kgw offsets lag --partitions`, with its JSON and its marks.

    Of an archive: READ LAG is the high watermark minus what its files have, COMMIT LAG is what
    they have minus what its commit log names. Marks: records-gone (the log begins after what was
    committed), past-end (the log ends before it), not-archived (nothing of the partition was ever
    committed), topic-gone.
    """
    if archive is None:
        from kgw.cli.offset_lag import lag as group_lag

        ctx.invoke(
            group_lag,
            groups=groups,
            topics=topics,
            is_detailed=True,
            is_check=is_check,
            watch_s=watch_s,
            bootstrap=bootstrap,
            is_json=is_json,
        )
        return
    if groups:
        raise click.UsageError("--archive takes no --group: its commit log says where it stands")
    if is_check and watch_s is not None:
        raise click.UsageError("--check ends with an answer, --watch does not end")
    while True:
        rows = _rows(bootstrap, archive, topics)
        if watch_s is None:
            break
        if is_json:
            print_json_line(_as_json(archive, rows))
        else:
            click.clear()
            _print(rows)
        time.sleep(watch_s)
    if is_json:
        print_json(_as_json(archive, rows))
    else:
        _print(rows)
    if is_check and any(row.mark for row in rows):
        ctx.exit(ExitCode.FAILED)


def _rows(bootstrap: Bootstrap, root: Path, topics: tuple[str, ...]) -> list[ArchiveLag]:
    chosen = chosen_topics(root, topics)

    async def action(client: AsyncClient) -> list[ArchiveLag]:
        return [row for name in chosen for row in await archive_lags(client, root, name)]

    try:
        return with_client(bootstrap, action)
    except (ArchiveError, OSError) as error:
        raise CommandError(str(error)) from None


def _totals(rows: list[ArchiveLag]) -> dict[str, int]:
    return {
        "read_lag": sum(row.read_lag or 0 for row in rows),
        "commit_lag": sum(row.commit_lag for row in rows),
    }


def _row(row: ArchiveLag) -> dict[str, Any]:
    return {
        **row._asdict(),
        "read_lag": row.read_lag,
        "commit_lag": row.commit_lag,
        "mark": row.mark or None,
    }


def _as_json(root: Path, rows: list[ArchiveLag]) -> dict[str, Any]:
    return {
        "archive": str(root),
        "totals": _totals(rows),
        "partitions": [_row(one) for one in rows],
    }


def _print(rows: list[ArchiveLag]) -> None:
    totals = {"topic": "total", "partition": "", "mark": "", **_totals(rows)}
    columns = "topic partition read_lag commit_lag committed written log_end=high_watermark mark"
    print_rows([*map(_row, rows), totals], columns, mark=lambda mark: mark or "")
