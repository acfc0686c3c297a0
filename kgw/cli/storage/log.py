"""`kgw log`: check, dump, copy, compact and adopt the data of a stopped server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.shared.addresses import is_namespace, usable
from kgw.cli.shared.client import confirm, topics_option, yes_option
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.formats import format_time, record_as_json
from kgw.cli.shared.output import (
    note,
    note_as,
    print_json,
    print_json_line,
    print_result,
    progress_bar,
    text_of,
)
from kgw.cli.shared.settings import assignments_option, config_file_option, json_option, load
from kgw.types import format_uuid, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.adopting import Adoption
    from kgw.backend.embedded.offline.dump import DumpedBatch, DumpedDamage
    from kgw.cli.storage.offline_compaction import PartitionCompaction
    from kgw.records.batch import RecordBatch

_SEGMENT_SUFFIX = ".log"
_MARKERS = {0: "abort", 1: "commit"}
_PLACE = ("base_offset", "last_offset", "leader_epoch")
_FROM_RECORDS = frozenset({"marker", "coordinator_epoch"})
_OF_THE_DUMP = frozenset({"position", "crc_matches", "header_matches"})
# For less data the progress bar would vanish at once.
_BAR_BYTES = 64 << 20


data_dir_argument = click.argument("data_dir", metavar="DATA_DIR", type=click.Path())
place_argument = click.argument("data_dir", metavar="DATA_DIR|URL", type=click.Path())


@click.group(short_help="Check, dump, copy, compact and adopt what a stopped server has stored.")
def log() -> None:
    """Look into a data directory, or a namespace of a SeaweedFS, without its server.

    URL is seaweedmq://FILER:PORT/NAMESPACE. No gateway may serve it meanwhile: a command waits 15 s
    for a gateway to release it.
    """


@log.command()
@place_argument
@click.option(
    "--records",
    "has_records",
    is_flag=True,
    help="Read each batch's records as well: one that is not what its header says stops readers.",
)
@json_option()
def check(data_dir: str, has_records: bool, is_json: bool) -> ExitCode:
    """Verify every batch, index and checkpoint; nothing is changed.

    Reports every fault, continues after it, and exits with 1 at the end. For each file it names the
    first 100 wrong entries and batches that contradict their header, and counts the rest. Remains
    of an unclean stop that the next start repairs are no problem.
    """
    problems: list[Any]
    if is_namespace(data_dir):
        from kgw.cli.storage.namespaces import check_namespace

        problems = check_namespace(data_dir, reads_records=has_records)
    else:
        from kgw.backend.embedded.offline.check import check_data_dir

        with usable(data_dir):
            problems = asyncio.run(check_data_dir(data_dir, reads_records=has_records))
    if is_json:
        print_json(
            {
                "data_dir": data_dir,
                "problems": [{"path": one.path, "detail": one.detail} for one in problems],
            }
        )
    else:
        for one in problems:
            click.echo(f"{click.style('problem:', fg='red')} {printable(str(one))}")
        if not problems:
            click.echo("No problems found.")
    return ExitCode.FAILED if problems else ExitCode.OK


@log.command()
@click.argument("path", metavar="PATH|URL", type=click.Path())
@click.option("--records", "has_records", is_flag=True, help="Print each batch's records as well.")
@topics_option(
    metavar="NAME",
    help="With a URL, of this topic alone; may be given several times.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Where no batch begins, go on with the segment's next whole one, and leave out the "
    "records of damaged batches; the exit code is 6 then.",
)
@json_option("Print each batch as a JSON object on a line.")
def dump(
    *,
    path: str,
    has_records: bool,
    topics: tuple[str, ...],
    skip_damaged: bool,
    is_json: bool,
) -> ExitCode:
    """Print the batches of a segment, a partition's directory, a whole DATA_DIR, or a namespace.

    Exits with 1 when a batch is damaged, or with --records contradicts its header; these batches
    are counted at the end. A segment ends where no batch begins, unless --skip-damaged is given.
    """
    run = LogDump(has_records=has_records, is_skipping=skip_damaged, is_json=is_json)
    if is_namespace(path):
        from kgw.cli.storage.namespaces import dump_namespace

        dump_namespace(path, topics, run)
        return run.tell()
    if topics:
        raise click.UsageError("--topic is for a namespace; give the directory of a partition")
    with usable(path):
        segments = _segments(path)
        sizes = [Path(segment).stat().st_size for segment in segments]
        total_bytes = sum(sizes)
        # On a terminal the printed lines show the progress; a bar is for output to a file.
        is_shown = total_bytes >= _BAR_BYTES and not sys.stdout.isatty()
        with progress_bar(total_bytes if is_shown else 0, "Read") as advance:
            for segment, size_bytes in zip(segments, sizes, strict=True):
                run.dump(segment)
                advance(size_bytes)
    return run.tell()


@log.command()
@click.argument("source", metavar="DATA_DIR|URL", type=click.Path())
@click.option(
    "--to",
    "target",
    required=True,
    metavar="URL|DATA_DIR",
    help="Where the records go: a namespace of a SeaweedFS, or, from one, a data directory.",
)
@json_option()
def copy(source: str, target: str, is_json: bool) -> ExitCode:
    """Copy all records, with their offsets, between a data directory and a SeaweedFS.

    Batches are copied byte for byte: offsets, leader epochs, producers, transactions and times
    stay. At the end both are read and compared. An interrupted copy continues where it stopped. No
    server may use either of them meanwhile. Afterwards `kgw state copy` copies topics, groups and
    committed offsets. Exits with 1 when a partition could not be copied as a whole.

    From a namespace into a new directory it exports segments in Kafka's layout.
    """
    from kgw.cli.storage.namespaces import copy_records

    if is_namespace(source) == is_namespace(target):
        raise click.BadParameter(
            "records are copied between a data directory and seaweedmq://FILER:PORT/NAMESPACE",
            param_hint="--to",
        )
    with usable(target if is_namespace(source) else source):
        copied = copy_records(source, target)
    print_result(
        [
            {
                "topic": one.topic,
                "partition": one.key.partition,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "copied_from": one.copied_from,
                "failure": one.failure,
            }
            for one in copied
        ],
        "topic partition start_offset end_offset copied_from result=failure",
        is_json=is_json,
        nothing="Nothing to copy: there is no topic.",
        failure=lambda failure: failure or "copied and compared",
    )
    return ExitCode.FAILED if any(one.failure for one in copied) else ExitCode.OK


@log.command()
@place_argument
@click.option("--dry-run", is_flag=True, help="Say what would be brought back, and do nothing.")
@json_option()
def adopt(data_dir: str, dry_run: bool, is_json: bool) -> ExitCode:
    """Restore topics whose metadata is lost, from their records.

    In a SeaweedFS they get back their settings; in a data directory they get the settings of new
    topics. Damaged rows that keep the server from starting are removed if it can do without them:
    the cluster's id, which is made anew, settings that were changed live, and records of unfinished
    creations and deletions. Exits with 1 when a topic cannot be brought back as it is.
    """
    with usable(data_dir):
        found, dropped = _adopt(data_dir, is_dry_run=dry_run)
    for kind, key in dropped:
        note(f"Removed the damaged {kind} row {printable(repr(key))}.")
    done = "would be adopted" if dry_run else "adopted"
    print_result(
        [
            {
                "topic": one.topic,
                "topic_id": format_uuid(one.topic_id),
                "partitions": list(one.partitions),
                "adopted": not dry_run and one.obstacle is None,
                "obstacle": one.obstacle,
                "settings": one.configs,
            }
            for one in found
        ],
        "topic topic_id partitions result=obstacle",
        is_json=is_json,
        nothing="Nothing to adopt: every topic on disk is known.",
        partitions=lambda numbers: ",".join(map(str, numbers)),
        obstacle=lambda obstacle: obstacle or done,
    )
    has_obstacles = any(one.obstacle is not None for one in found)
    return ExitCode.FAILED if has_obstacles else ExitCode.OK


@log.command("accept-loss")
@click.argument("url", metavar="URL")
@topics_option(
    metavar="NAME",
    help="Of this topic; may be given several times.  [default: every topic]",
)
@click.option("--dry-run", is_flag=True, help="Say what is lost, and do nothing.")
@yes_option
@json_option()
def accept_loss(
    *,
    url: str,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    is_json: bool,
) -> ExitCode:
    """Let partitions continue whose logs in a SeaweedFS have lost their end, for good.

    A gateway does not open a log that ends before the end that the state knows. This command makes
    it continue after the lost records: no offset is assigned twice. A log that has lost all records
    begins after them, so that consumers get an offset-out-of-range error; in other logs they skip
    the lost offsets. Restore files from a backup before, if there is one. Exits with 1 when a log
    cannot continue.
    """
    from kgw.cli.storage.namespaces import accept_losses

    if not is_namespace(url):
        raise click.BadParameter(
            "seaweedmq://FILER:PORT/NAMESPACE is expected: a data directory goes on by itself",
            param_hint="URL",
        )
    if not dry_run:
        confirm("the records that are lost, for good", yes=yes, verb="Give up")
    found = accept_losses(url, topics, is_dry_run=dry_run)
    done = "would go on" if dry_run else "goes on"
    print_result(
        [
            {
                "topic": one.topic,
                "partition": one.partition,
                "end_offset": one.end_offset,
                "goes_on_at": one.lost_end,
                "obstacle": one.obstacle,
            }
            for one in found
        ],
        "topic partition end_offset goes_on_at result=obstacle",
        is_json=is_json,
        nothing="Nothing is lost: every log is as long as the state knows it to have been.",
        obstacle=lambda obstacle: obstacle or done,
    )
    return ExitCode.FAILED if any(one.obstacle for one in found) else ExitCode.OK


@log.command()
@data_dir_argument
@topics_option(
    metavar="NAME",
    help="Of this topic; may be given several times.  [default: every compacted topic]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@config_file_option
@assignments_option
@json_option()
def compact(
    *,
    data_dir: str,
    topics: tuple[str, ...],
    dry_run: bool,
    config_file: str | None,
    assignments: tuple[str, ...],
    is_json: bool,
) -> ExitCode:
    """Compact the topics whose cleanup.policy says so, as their server does from time to time.

    The newest record of each key stays, with its offset: the active segment is left alone. The
    directory is opened as at a start, which repairs it after an unclean stop. Exits with 1 when a
    partition cannot be compacted.

    Give the settings that the server has, as to kgw serve, from the environment too: they say how
    long deletion markers stay in topics without a setting of their own.
    """
    from kgw.cli.storage.offline_compaction import compact as compact_topics

    config = load(config_file, assignments, [("log.dirs", data_dir, "DATA_DIR")])
    with usable(data_dir):
        results = compact_topics(config, topics, is_dry_run=dry_run)
    print_result(
        [_compaction_as_json(one, is_done=not dry_run) for one in results],
        "topic partition dirty=dirty_ratio bytes_before after=bytes_after "
        "records_before after=records_after",
        is_json=is_json,
        nothing="No topic is compacted.",
        dirty_ratio="{:.0%}".format,
    )
    for one in results:
        if one.failure is not None and not is_json:
            note(f"{one.topic}-{one.partition}: {one.failure}")
    return ExitCode.FAILED if any(one.failure is not None for one in results) else ExitCode.OK


def _adopt(place: str, *, is_dry_run: bool) -> Adoption:
    from kgw.backend.adopting import Adoption

    if is_namespace(place):
        from kgw.cli.storage.namespaces import adopt_topics as adopt_in_namespace

        return adopt_in_namespace(place, is_dry_run=is_dry_run)
    from kgw.backend.embedded.offline.adopt import adopt as adopt_topics
    from kgw.backend.embedded.offline.adopt import find_adoptable

    if is_dry_run:
        return Adoption(asyncio.run(find_adoptable(place)), ())
    return asyncio.run(adopt_topics(place))


def _segments(path: str) -> list[str]:
    """Return the segment files at a path, sorted."""
    from kgw.backend.embedded.files.fs import RealFs
    from kgw.backend.embedded.foreign import refuse_foreign
    from kgw.backend.embedded.layout import PARTITION_NAME
    from kgw.backend.embedded.offline.dump import segment_paths

    if not Path(path).is_dir():
        return [path]
    segments = sorted(str(file) for file in Path(path).glob(f"*{_SEGMENT_SUFFIX}"))
    # A partition without records has no segment files.
    if segments or (Path(path) / PARTITION_NAME).exists():
        return segments
    try:
        return segment_paths(path)
    except FileNotFoundError:
        refuse_foreign(RealFs(), path)
        raise CommandError(
            f"{path} is neither a segment, nor a partition's directory, nor a data directory",
            ExitCode.DATA_DIRECTORY,
        ) from None


class LogDump:
    """One run of `kgw log dump`; it counts the damage."""

    def __init__(self, *, has_records: bool, is_skipping: bool, is_json: bool) -> None:
        self._has_records = has_records
        self._is_skipping = is_skipping
        self._is_json = is_json
        self._damaged_batches = 0
        self._damages = 0
        self._damaged_bytes = 0
        self._lying_batches = 0

    def dump(self, path: str) -> None:
        """Print the batches of one segment."""
        from kgw.backend.embedded.offline.dump import DumpedBatch, dump_segment

        self.begin(path)
        try:
            for one in dump_segment(path, skip_damaged=self._is_skipping):
                if isinstance(one, DumpedBatch):
                    self.show_batch(path, one)
                else:
                    self.show_damage(path, one)
        except ValueError as error:
            raise CommandError(str(error), ExitCode.USAGE) from None

    def begin(self, path: str) -> None:
        """Print the name of a file before its batches."""
        if not self._is_json:
            click.echo(path)

    def show_damage(self, path: str, one: DumpedDamage) -> None:
        """Print and count bytes that are not a batch."""
        self._damages += 1
        self._damaged_bytes += one.size_bytes
        if self._is_json:
            print_json_line({"segment": path, "damage": one._asdict()})
        else:
            click.echo(
                f"  position {one.position}: {one.size_bytes} bytes are damaged: {one.detail}"
            )

    def tell(self) -> ExitCode:
        """Print the amount of damage, and return the exit code."""
        if not (self._damaged_batches or self._damages or self._lying_batches):
            return ExitCode.OK
        counts = {
            "damaged_batches": self._damaged_batches,
            "damaged_bytes": self._damaged_bytes,
            "lying_batches": self._lying_batches,
        }
        note_as(
            f"Batches that are damaged: {self._damaged_batches}; that are not what their header "
            f"says: {self._lying_batches}; bytes that are no batch: {self._damaged_bytes}.",
            counts,
            is_json=self._is_json,
        )
        return ExitCode.DAMAGED if self._is_skipping else ExitCode.FAILED

    def show_batch(self, path: str, one: DumpedBatch) -> None:
        """Print one batch."""
        from kgw.records.errors import RecordError
        from kgw.records.reader import read_records

        is_damaged = not one.crc_matches or one.header_matches is False
        self._damaged_batches += is_damaged
        records: list[dict[str, Any]] = []
        problem = None
        if self._has_records and not one.batch.is_control:
            try:
                if not (is_damaged and self._is_skipping):
                    records.extend(record_as_json(record) for record in read_records(one.batch))
            except RecordError as error:
                problem = str(error)
                self._lying_batches += not is_damaged
        described = _describe_batch(one)
        if self._is_json:
            if self._has_records:
                described |= {"records": records, "problem": problem}
            print_json_line({"segment": path, **described})
            return
        unproven = described.pop("unproven", None)
        line = _on_a_line(described)
        click.echo(f"  {line} unproven: {_on_a_line(unproven)}" if unproven else f"  {line}")
        for record in records:
            click.echo(f"    {_on_a_line(record)}")
        if problem is not None:
            click.echo(f"    the records cannot be read: {problem}")


def _describe_batch(one: DumpedBatch) -> dict[str, Any]:
    batch = one.batch
    described: dict[str, Any] = {
        "position": one.position,
        "size_bytes": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "record_count": batch.record_count,
        "leader_epoch": batch.leader_epoch,
        "max_timestamp_ms": batch.max_timestamp_ms,
        "max_timestamp": format_time(batch.max_timestamp_ms),
        "timestamp_type": "LogAppendTime" if batch.uses_log_append_time else "CreateTime",
        "compression": _compression(one),
        "crc_matches": one.crc_matches,
        "header_matches": one.header_matches,
    }
    if batch.has_producer_id:
        described |= {
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
        }
    if batch.is_transactional or batch.is_control:
        described |= {"transactional": batch.is_transactional, "control": batch.is_control}
        described |= _marker(batch)
    if batch.delete_horizon_ms is not None:
        described["delete_horizon"] = format_time(batch.delete_horizon_ms)
    unproven = {name: described[name] for name in _unproven(one, described)}
    if unproven:
        described |= {**dict.fromkeys(unproven), "unproven": unproven}
    return described


def _unproven(one: DumpedBatch, described: Iterable[str]) -> list[str]:
    """Return the fields of a batch that may be wrong, because a checksum fails.

    The batch's own CRC does not cover its offsets and leader epoch. The checksum in the side file
    covers the whole header, so its failure does not say which field is wrong.
    """
    if one.crc_matches:
        return [*_PLACE] if one.header_matches is False else []
    if one.header_matches:
        return [name for name in described if name in _FROM_RECORDS]
    return [name for name in described if name not in _OF_THE_DUMP]


def _marker(batch: RecordBatch) -> dict[str, Any]:
    """Return the marker's content if the batch is a transaction marker (KIP-98), else nothing."""
    from struct import error, unpack_from

    from kgw.records.errors import RecordError
    from kgw.records.reader import read_records

    if not batch.is_control or not batch.is_transactional:
        return {}
    try:
        for record in read_records(batch):
            _, kind = unpack_from(">hh", record.key or b"")
            _, coordinator_epoch = unpack_from(">hi", record.value or b"")
            if kind in _MARKERS:
                return {"marker": _MARKERS[kind], "coordinator_epoch": coordinator_epoch}
    except (RecordError, error):
        pass
    return {"marker": "unknown", "coordinator_epoch": None}


def _compression(one: DumpedBatch) -> str:
    from kgw.records.errors import RecordError

    try:
        return one.batch.compression.name.lower()
    except RecordError:
        return "unknown"


def _on_a_line(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={text_of(value)}" for name, value in fields.items())


def _compaction_as_json(one: PartitionCompaction, *, is_done: bool) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "dirty_ratio": one.dirty_ratio,
        "compacted": is_done and one.report is not None,
        "failure": one.failure,
        **(one.report._asdict() if one.report is not None else {}),
    }
