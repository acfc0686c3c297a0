"""`kgw pipeline lag`: the lag of groups and of archives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.pipeline.archives import archive_option, chosen_topics, only_topics_option
from kgw.cli.pipeline.clusters import given_cluster
from kgw.cli.pipeline.lag_history import HistoryOptions, history
from kgw.cli.pipeline.spark import spark_options
from kgw.cli.shared.client import Bootstrap, client_options, with_client
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.output import clear_screen, print_json, print_json_line, print_rows
from kgw.cli.shared.seeks import time_option
from kgw.cli.shared.settings import duration_option, watch_option
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.lag import ArchiveLag, archive_lags

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.client import AsyncClient
    from kgw.pipeline.master import Master


@click.command(short_help="Show how far groups are behind, or an archive.")
@click.option("-g", "--group", "groups", multiple=True, metavar="GROUP", help="Only this group.")
@only_topics_option
@archive_option(
    "archive", is_required=False, what="Show how far this archive is behind, and no groups."
)
@click.option("--check", "is_check", is_flag=True, help="Exit with 1 when something is marked.")
@watch_option(help="Show it again every so often, until Ctrl-C.")
@click.option(
    "--history",
    "is_history",
    is_flag=True,
    help="Show what came into topics over time instead; with --group, how much of it is unread.",
)
@time_option(
    "--since",
    "since_ms",
    help="--history: from this ISO 8601 time on.  [default: from the first record on]",
)
@time_option("--until", "until_ms", help="--history: up to this time.  [default: to the end]")
@duration_option(
    "--bucket",
    "bucket_ms",
    help="--history: how much time a row stands for, as PT5M.  [default: as fits]",
)
@click.option(
    "--partitions", "is_by_partition", is_flag=True, help="--history: each partition for itself."
)
@spark_options
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
    is_history: bool,
    since_ms: int | None,
    until_ms: int | None,
    bucket_ms: int | None,
    is_by_partition: bool,
    master: Master,
    bootstrap: Bootstrap,
    is_json: bool,
) -> ExitCode:
    """Show how far groups are behind in each partition, or an archive. Spark is not needed.

    For groups it is `kgw offsets lag --partitions`, with its JSON and its marks.

    For an archive: READ LAG is the high watermark minus the end of the archive's files, COMMIT LAG
    is the end of the files minus the end of the commit log. Marks: records-gone (the topic's log
    begins after the end of the commit log), past-end (the log ends before it), not-archived
    (nothing of the partition was ever committed), topic-gone.

    With --history: batches, records and bytes by the time of a batch's latest record. Headers of
    batches are read, records are not unpacked; Spark helps from 20 million offsets on.
    """
    asked = HistoryOptions(
        topics, groups[0] if groups else None, since_ms, until_ms, bucket_ms, is_by_partition
    )
    if is_history:
        _check_history(asked, groups, archive, is_check=is_check, watch_s=watch_s)
        history(given_cluster(bootstrap), asked, master, is_json=is_json)
        return ExitCode.OK
    if any(one is not None for one in asked[2:5]) or is_by_partition:
        raise click.UsageError("--since, --until, --bucket and --partitions belong to --history")
    if archive is None:
        from kgw.cli.groups.offset_lag import lag as group_lag

        code: ExitCode = ctx.invoke(
            group_lag,
            groups=groups,
            topics=topics,
            is_detailed=True,
            is_check=is_check,
            watch_s=watch_s,
            bootstrap=bootstrap,
            is_json=is_json,
        )
        return code
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
            clear_screen()
            _print(rows)
        time.sleep(watch_s)
    if is_json:
        print_json(_as_json(archive, rows))
    else:
        _print(rows)
    is_marked = is_check and any(row.mark for row in rows)
    return ExitCode.FAILED if is_marked else ExitCode.OK


def _check_history(
    asked: HistoryOptions,
    groups: tuple[str, ...],
    archive: Path | None,
    *,
    is_check: bool,
    watch_s: float | None,
) -> None:
    """Raise UsageError for options that do not work with --history."""
    if archive is not None or is_check or watch_s is not None:
        raise click.UsageError("--history takes no --archive, --check or --watch")
    if not asked.topics:
        raise click.UsageError("--history: say which topic, with --topic")
    if len(groups) > 1:
        raise click.UsageError("--history takes one --group")
    if asked.bucket_ms == 0:
        raise click.UsageError("--bucket: a row stands for some time")
    since_ms, until_ms = asked.since_ms, asked.until_ms
    if since_ms is not None and until_ms is not None and until_ms <= since_ms:
        raise click.UsageError("--until is not later than --since")


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
