"""`kgw doctor`: connects as a client would, and reports problems."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.shared.client import DEFAULT_PORT, delay_teller, parse_bootstrap
from kgw.cli.shared.command_config import command_config_option, given_security
from kgw.cli.shared.damage import PROBES_WHEN_SKIPPING
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import print_json, print_rows
from kgw.cli.shared.settings import (
    assignments_option,
    config_file_option,
    json_option,
    load,
    parsed,
    with_variables_checked,
)
from kgw.client import AsyncClient, ClientError, Connection, Delays
from kgw.config.listeners import format_address
from kgw.errors import KgwError
from kgw.partitions.topics.topic import INTERNAL_TOPICS
from kgw.problems import REASONS
from kgw.types import printable

if TYPE_CHECKING:
    from kgw.client import (
        AdvertisedBroker,
        ApiSupport,
        ClientSecurity,
        ClusterDescription,
        TopicDescription,
    )

_CONNECT_TIMEOUT_S = 5.0
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_VALIDATION = "kgw.validation"
_READ = {
    "headers": "only its header is read",
    "records": "its header and every record are read",
}
_TOPICS_NAMED = 10
_PAGE_RECORDS = 500
_HARMLESS = frozenset(reason.name for reason in REASONS if not reason.refuses)
# No client can work with a server that lacks one of these APIs.
_ESSENTIAL = ("Produce", "Fetch", "ListOffsets", "Metadata")


class Reach(NamedTuple):
    """An advertised address, and the error of connecting to it; None if it answered."""

    broker: AdvertisedBroker
    failure: str | None


class Validation(NamedTuple):
    """The setting kgw.validation: which part of a batch is checked before the batch is stored."""

    default: str
    topics: dict[str, str]
    """The topics with another value than the default, and their values."""


class TopicReadResult(NamedTuple):
    """The result of reading a topic."""

    topic: str
    records: int
    problems: list[str]


class Examination(NamedTuple):
    """Everything that was found out about one server."""

    address: str
    cluster: ClusterDescription
    apis: list[ApiSupport]
    reaches: list[Reach]
    topics: list[TopicDescription]
    validation: Validation | None = None
    """None if the server does not report the setting."""
    read: tuple[TopicReadResult, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    """The problems that the server itself reports, each as a reason and a sentence."""


@click.command(short_help="Connect as a client would, and say what is wrong.")
@click.argument(
    "address",
    metavar="[HOST:PORT]",
    envvar="KGW_BOOTSTRAP",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    # If the environment names several servers, take the first one.
    callback=with_variables_checked(parsed(lambda text: parse_bootstrap(text)[0])),
)
@click.option(
    "--read",
    "read_topics",
    multiple=True,
    metavar="TOPIC",
    help="Read all records of this topic, and name batches that stop readers: damaged ones, and "
    "those that are not what their header says. May be given several times.",
)
@click.option(
    "--backend",
    metavar="URL",
    help="Look at a SeaweedFS instead: seaweedmq://FILER:PORT/NAMESPACE.",
)
@click.option(
    "--spark",
    "is_spark",
    is_flag=True,
    help="Look at whether Spark can run here instead, and say what to install.",
)
@command_config_option
@config_file_option
@assignments_option
@json_option()
def doctor(
    *,
    address: tuple[str, int],
    read_topics: tuple[str, ...],
    backend: str | None,
    is_spark: bool,
    config_file: str | None,
    assignments: tuple[str, ...],
    is_json: bool,
) -> ExitCode:
    """Connect as a client would: show listeners, versions, each API's version, and problems.

    HOST:PORT is that of KGW_BOOTSTRAP, or 127.0.0.1:9092, unless given. Exits with 1 when something
    would keep clients from working, with 3 when nothing that speaks Kafka answers there. A server
    of kgw also says itself for which reasons it refuses records or does not serve them.

    With --backend, or a configuration whose kgw.backend is a SeaweedFS, that is examined instead,
    with the settings that the server has: version, filers, volume servers, copies, fence, lease,
    state, mirror of committed offsets, topics. A gateway may use it meanwhile. It writes one entry
    and one chunk, and removes both.

    With --spark no server is asked: it looks at Java, PySpark, PyArrow and NumPy.
    """
    if is_spark:
        if backend is not None or read_topics:
            raise click.UsageError("--spark stands for itself, without --backend and --read")
        from kgw.cli.doctor.spark import examine_spark

        return examine_spark(is_json=is_json)
    if backend is not None or config_file is not None or assignments:
        overrides = [] if backend is None else [("kgw.backend", backend, "--backend")]
        config = load(config_file, assignments, overrides)
        if backend is not None or config.backend.startswith("seaweedmq:"):
            from kgw.cli.doctor.seaweedmq import examine_backend

            return examine_backend(config, is_json=is_json)
    host, port = address
    delays, security = Delays(delay_teller()), given_security()
    examination = asyncio.run(_examine(host, port, read_topics, delays, security))
    problems = find_problems(examination, host)
    if is_json:
        print_json(_as_json(examination, problems))
    else:
        _print_examination(examination, problems)
    return ExitCode.FAILED if problems else ExitCode.OK


async def _examine(
    host: str,
    port: int,
    read_topics: tuple[str, ...],
    delays: Delays,
    security: ClientSecurity | None,
) -> Examination:
    client = AsyncClient(
        [(host, port)],
        client_id="kgw-doctor",
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        retry_s=0,
        delays=delays,
        security=security,
    )
    async with client:
        connection = await client.any_connection()
        apis = connection.api_support()
        cluster = await client.cluster()
        topics = await client.topics()
        validation = await _validation(client, cluster, [one.name for one in topics])
        told = await _told(client, cluster)
        reaches = await asyncio.gather(*(_reach(broker, security) for broker in cluster.brokers))
        # Do not read from brokers that cannot be reached; those are already reported.
        is_reached = not any(failure for _, failure in reaches)
        read = [await _read(client, name) for name in read_topics if is_reached]
    return Examination(
        format_address(host, port),
        cluster,
        apis,
        list(reaches),
        topics,
        validation,
        tuple(read),
        told,
    )


async def _told(client: AsyncClient, cluster: ClusterDescription) -> tuple[tuple[str, str], ...]:
    """Return the problems that the server reports; none if it does not support or allow this."""
    from kgw.client import AdminClient

    try:
        return tuple(await AdminClient(client).problems(cluster.controller_id))
    except ClientError:
        return ()


async def _validation(
    client: AsyncClient, cluster: ClusterDescription, topics: list[str]
) -> Validation | None:
    """Return the server's kgw.validation; None if it does not support or allow this."""
    from kgw.client import AdminClient
    from kgw.client.admin import BROKER

    admin = AdminClient(client)
    try:
        rows = await admin.describe_settings(BROKER, str(cluster.controller_id))
        default = next((row.value for row in rows if row.name == _VALIDATION), None)
        if default is None:
            return None
        values = await admin.topic_values(_VALIDATION, topics)
    except ClientError:
        return None
    return Validation(default, {name: one for name, one in values.items() if one != default})


async def _read(client: AsyncClient, name: str) -> TopicReadResult:
    """Read a topic up to its present end, and collect the errors that would stop consumers."""
    from kgw.client import WireReader
    from kgw.client.cursor import RecordFilter
    from kgw.client.subscription import OffsetSubscriber
    from kgw.clock import SystemClock
    from kgw.offsets.ranges import DamagedRangeError
    from kgw.offsets.seeker import Seek, SeekKind

    try:
        reader = WireReader(client, await client.topic(name), probes=PROBES_WHEN_SKIPPING)
        bounds = await reader.bounds(reader.partitions)
    except KgwError as error:
        return TopicReadResult(name, 0, [f"topic {name} cannot be read: {error}"])
    records, problems = 0, []
    # Read partitions one by one, so that an error in one does not affect the others.
    for partition, ends in sorted(bounds.items()):
        try:
            if isinstance(ends, KgwError):
                raise ends
            subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
                {partition: Seek(SeekKind.EXACT_OFFSET, ends.earliest)},
                RecordFilter(end_offset=ends.latest),
            )
            while not subscription.is_done:
                try:
                    records += len(await subscription.next_page(_PAGE_RECORDS))
                except DamagedRangeError as error:
                    problems.append(f"topic {name} {error}")
                    if error.end_offset is None:
                        break
                    after = Seek(SeekKind.EXACT_OFFSET, error.end_offset)
                    await subscription.seek({partition: after})
        except KgwError as error:
            problems.append(f"topic {name} partition {partition} cannot be read: {error}")
    return TopicReadResult(name, records, problems)


async def _reach(broker: AdvertisedBroker, security: ClientSecurity | None) -> Reach:
    """Connect to an advertised address, as every client does after its first Metadata response."""
    try:
        connection = await Connection.open(
            broker.host,
            broker.port,
            client_id="kgw-doctor",
            timeout_s=_CONNECT_TIMEOUT_S,
            security=security,
        )
    except ClientError as error:
        return Reach(broker, str(error))
    await connection.aclose()
    return Reach(broker, None)


def find_problems(examination: Examination, host: str) -> list[str]:
    """Return the problems that keep clients from working; the server was reached at `host`."""
    problems = []
    if not examination.cluster.brokers:
        problems.append("the server advertises no broker: clients have nowhere to go")
    for broker, failure in examination.reaches:
        place = format_address(broker.host, broker.port)
        if broker.host in _EVERY_ADDRESS:
            problems.append(
                f"node {broker.node_id} advertises {place}, which is no address to connect to: "
                "start the server with --advertise HOST:PORT"
            )
        elif failure is not None:
            problems.append(
                f"node {broker.node_id} advertises {place}, which cannot be used from here: "
                f"{failure}; start the server with --advertise and an address that clients reach"
            )
        elif broker.host in _LOOPBACK and host not in _LOOPBACK:
            problems.append(
                f"node {broker.node_id} advertises {place}: clients on other machines would "
                "connect to themselves; start the server with --advertise HOST:PORT"
            )
    known = {api.name: api for api in examination.apis}
    problems += [
        f"topic {one.name} is an ordinary one that holds records, where tools look for Kafka's: "
        f"copy what it holds to another topic, then kgw topics delete {one.name}"
        for one in examination.topics
        if one.name in INTERNAL_TOPICS and not one.is_internal
    ]
    problems += [f"the server does not serve {name}" for name in _ESSENTIAL if name not in known]
    problems += [
        f"no version of {api.name} is known on both sides"
        for api in examination.apis
        if api.client_min is not None and api.spoken is None
    ]
    problems += [
        f"topic {topic.name} partition {one.partition} has no leader"
        for topic in examination.topics
        for one in topic.partitions
        if one.leader_id < 0
    ]
    for read in examination.read:
        problems += read.problems
    problems += [
        f"the server says ({reason}): {text}"
        for reason, text in examination.told
        if reason not in _HARMLESS
    ]
    return problems


def _as_json(examination: Examination, problems: list[str]) -> dict[str, Any]:
    return {
        "address": examination.address,
        "cluster_id": examination.cluster.cluster_id,
        "controller_id": examination.cluster.controller_id,
        "brokers": [
            broker._asdict() | {"reachable": failure is None, "failure": failure}
            for broker, failure in examination.reaches
        ],
        "topics": len(examination.topics),
        "partitions": sum(len(topic.partitions) for topic in examination.topics),
        "apis": [api._asdict() for api in examination.apis],
        "validation": examination.validation and examination.validation._asdict(),
        "read": [{"topic": one.topic, "records": one.records} for one in examination.read],
        "client": _own_versions(),
        "told": [{"reason": reason, "text": text} for reason, text in examination.told],
        "problems": problems,
    }


def _print_examination(examination: Examination, problems: list[str]) -> None:
    cluster = examination.cluster
    click.echo(f"Connected to {examination.address} and spoke Kafka's protocol.")
    click.echo(f"Cluster id {cluster.cluster_id}, controller is node {cluster.controller_id}.")
    topics = len(examination.topics)
    partitions = sum(len(topic.partitions) for topic in examination.topics)
    click.echo(
        f"{topics} topic{'s' * (topics != 1)} with {partitions} partition{'s' * (partitions != 1)}."
    )
    click.echo(", ".join(f"{name} {version}" for name, version in _own_versions().items()) + ".")
    if examination.validation is not None:
        click.echo(_say_validation(examination.validation))
    for read in examination.read:
        click.echo(printable(f"Records read of topic {read.topic}: {read.records}."))
    click.echo("\nAdvertised listeners:")
    for broker, failure in examination.reaches:
        place = format_address(broker.host, broker.port)
        click.echo(f"  node {broker.node_id} at {place}: {failure or 'answers'}")
    click.echo("\nAPIs:")
    print_rows(
        [
            {
                **api._asdict(),
                "server": f"{api.server_min}-{api.server_max}",
                "client": None if api.client_min is None else f"{api.client_min}-{api.client_max}",
            }
            for api in examination.apis
        ],
        "key=api_key name server client spoken",
    )
    click.echo()
    for reason, text in examination.told:
        if reason in _HARMLESS:
            click.echo(printable(f"note: the server says ({reason}): {text}"))
    for problem in problems:
        click.echo(f"{click.style('problem:', fg='red')} {problem}")
    if not problems:
        click.echo("No problems found.")


def _say_validation(validation: Validation) -> str:
    """Return a line about the part of each batch that is checked before it is stored."""
    said = (
        f"Before a batch is stored, {_READ.get(validation.default, 'it is unknown what is read')}"
    )
    said += f" ({_VALIDATION}={validation.default})"
    if validation.default == "headers":
        said += ". Readers stop at a batch whose records are not what it says; "
        said += "--read TOPIC finds them"
    if validation.topics:
        others = sorted(f"{topic}={value}" for topic, value in validation.topics.items())
        said += f". Other topics: {', '.join(others[:_TOPICS_NAMED])}"
        if len(others) > _TOPICS_NAMED:
            said += f" and {len(others) - _TOPICS_NAMED} more topics"
    return printable(said + ".")


def _own_versions() -> dict[str, str]:
    """Return this machine's versions of kgw, Python and SQLite, which are also a local server's."""
    import platform
    import sqlite3

    from kgw import __version__

    return {
        "kgw": __version__,
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
    }
