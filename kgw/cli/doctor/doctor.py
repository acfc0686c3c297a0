"""`kgw doctor`: connects as a client would, and reports problems."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import click

from kgw.cli.doctor.connecting import ClientSetup, connection_problems, key_file_problems
from kgw.cli.doctor.examination import (
    Examination,
    Reach,
    TopicReadResult,
    Validation,
    find_problems,
)
from kgw.cli.doctor.printing import VALIDATION, as_json, print_examination, print_problems
from kgw.cli.doctor.probe import CLIENT_ID, given_of, key_file_modes, own_name
from kgw.cli.doctor.security import (
    Intention,
    ask_security,
    diagnose,
    security_notes,
    security_problems,
)
from kgw.cli.shared.client import DEFAULT_PORT, delay_teller, parse_bootstrap
from kgw.cli.shared.command_config import (
    GivenFile,
    command_config_option,
    given_file,
    given_security,
)
from kgw.cli.shared.damage import PROBES_WHEN_SKIPPING
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import print_json
from kgw.cli.shared.settings import (
    assignments_option,
    config_file_option,
    json_option,
    load,
    parsed,
    with_variables_checked,
)
from kgw.client import AsyncClient, ClientError, Connection, Delays
from kgw.client.api_support import api_support
from kgw.clock import SystemClock
from kgw.config.listeners import SecurityProtocol, format_address
from kgw.errors import KgwError
from kgw.types import printable

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.offline.findings import CheckResult
    from kgw.client import AdvertisedBroker, ClientSecurity, ClusterDescription
    from kgw.clock import Clock
    from kgw.config import Config

_CONNECT_TIMEOUT_S = 5.0
_PAGE_RECORDS = 500


class _Client(NamedTuple):
    """How `kgw doctor` connects."""

    security: ClientSecurity | None
    file: GivenFile | None
    given: ClientSetup
    clock: Clock
    own_name: str = ""
    """The name in the client's certificate."""

    @property
    def now_s(self) -> float:
        return self.clock.wall_ms() / 1000


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
    "-b",
    "--bootstrap",
    callback=parsed(lambda text: parse_bootstrap(text)[0]),
    metavar="HOST:PORT",
    help="The same as HOST:PORT.",
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
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="With --producer or --consumer: look whether the client may use this topic. May be given "
    "several times.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="With --consumer: look whether the client may use this group. May be given several times.",
)
@click.option("--producer", is_flag=True, help="The client writes to the topics.")
@click.option("--consumer", is_flag=True, help="The client reads the topics.")
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Look at the users and access rules of a server that does not run, and at the settings "
    "of --config, instead of a server.",
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
    bootstrap: tuple[str, int] | None,
    read_topics: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    producer: bool,
    consumer: bool,
    data_dir: str | None,
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

    With TLS and logins (--command-config) each problem names the line or the setting to change:
    security.protocol, authority, names and dates of the certificate, mechanism, user, clocks.
    --producer and --consumer look for rights on topics and groups that the user lacks.

    With --config or --data-dir no server is asked: the settings of its listeners, its certificate,
    its users and access rules are examined.

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
    if bool(topics or groups) != (producer or consumer):
        raise click.UsageError(
            "--producer and --consumer are for --topic, and --consumer for --group: give both"
        )
    if backend is not None or config_file is not None or assignments or data_dir is not None:
        overrides = [] if backend is None else [("kgw.backend", backend, "--backend")]
        if data_dir is not None:
            overrides.append(("log.dirs", data_dir, "--data-dir"))
        config = load(config_file, assignments, overrides)
        if backend is not None or config.backend.startswith("seaweedmq:"):
            from kgw.cli.doctor.seaweedmq import examine_backend

            return examine_backend(config, _about_setup(config, config_file), is_json=is_json)
        if _is_about_files():
            if bootstrap is not None or read_topics or topics or groups:
                raise click.UsageError("a server is not asked beside --config and --data-dir")
            from kgw.cli.doctor.setup import examine_setup

            return examine_setup(config, config_file, given_file(), is_json=is_json)
    host, port = bootstrap or address
    security, file = given_security(), given_file()
    clock = SystemClock()
    client = _Client(security, file, given_of(file, security), clock, own_name(file))
    wanted = Intention(topics, groups, is_producer=producer, is_consumer=consumer)
    try:
        examination = asyncio.run(_examine(host, port, read_topics, wanted, client))
    except ClientError as error:
        return _report_failure(host, port, error, client, is_json=is_json)
    problems = key_file_problems(key_file_modes(file), client.given)
    problems += find_problems(examination, host)
    notes = []
    if examination.answers is not None:
        problems += security_problems(examination.answers, client.given, client.now_s)
        notes += security_notes(examination.answers, client.now_s)
    if is_json:
        print_json(as_json(examination, problems, notes))
    else:
        print_examination(examination, problems, notes)
    return ExitCode.FAILED if problems else ExitCode.OK


def _about_setup(config: Config, config_file: str | None) -> list[CheckResult]:
    """Return the findings about the security of a configuration; none if it has none."""
    if all(one is SecurityProtocol.PLAINTEXT for one in config.protocols.values()):
        return []
    from kgw.cli.doctor.setup import find_in_setup

    return find_in_setup(config, config_file)


def _is_about_files() -> bool:
    """Return whether the command line itself names files of a server, and no server."""
    source = click.get_current_context().get_parameter_source
    given = click.core.ParameterSource.COMMANDLINE
    names = ("config_file", "assignments", "data_dir")
    return source("address") is not given and any(source(name) is given for name in names)


def _report_failure(
    host: str, port: int, failure: ClientError, client: _Client, *, is_json: bool
) -> ExitCode:
    """Print why the server cannot be used. Raises the failure if nothing more was found out."""
    found = asyncio.run(
        diagnose(host, port, client.security, client.file, failure, _CONNECT_TIMEOUT_S)
    )
    problems = [] if found is None else connection_problems(found, client.given, client.now_s)
    if not problems:
        raise failure
    problems += key_file_problems(key_file_modes(client.file), client.given)
    address = format_address(host, port)
    if is_json:
        print_json({"address": address, "failure": str(failure), "problems": problems})
    else:
        click.echo(printable(f"Cannot use {address}: {failure}"))
        print_problems(problems)
    return ExitCode.FAILED


async def _examine(
    host: str, port: int, read_topics: tuple[str, ...], wanted: Intention, how: _Client
) -> Examination:
    client = AsyncClient(
        [(host, port)],
        client_id=CLIENT_ID,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        retry_s=0,
        delays=Delays(delay_teller()),
        security=how.security,
    )
    async with client:
        connection = await client.any_connection()
        apis = api_support(connection.versions)
        cluster = await client.cluster()
        topics = await client.topics()
        settings = await _settings(client, cluster)
        validation = await _validation(client, settings, [one.name for one in topics])
        told = await _told(client, cluster)
        answers = await ask_security(
            client,
            format_address(host, port),
            cluster.controller_id,
            settings,
            how.given,
            how.own_name,
            wanted,
            how.clock,
        )
        reaches = await asyncio.gather(*(_reach(broker, how) for broker in cluster.brokers))
        # Do not read from brokers that cannot be reached; those are already reported.
        is_reached = not any(one.failure for one in reaches)
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
        answers,
    )


async def _told(client: AsyncClient, cluster: ClusterDescription) -> tuple[tuple[str, str], ...]:
    """Return the problems that the server reports; none if it does not support or allow this."""
    from kgw.client import AdminClient

    try:
        return tuple(await AdminClient(client).problems(cluster.controller_id))
    except ClientError:
        return ()


async def _settings(client: AsyncClient, cluster: ClusterDescription) -> dict[str, str | None]:
    """Return the server's settings; none if it does not support or allow this."""
    from kgw.client import AdminClient
    from kgw.client.admin import BROKER

    try:
        rows = await AdminClient(client).describe_settings(BROKER, str(cluster.controller_id))
    except ClientError:
        return {}
    return {row.name: row.value for row in rows}


async def _validation(
    client: AsyncClient, settings: dict[str, str | None], topics: list[str]
) -> Validation | None:
    """Return the server's kgw.validation; None if it does not support or allow this."""
    from kgw.client import AdminClient

    default = settings.get(VALIDATION)
    if default is None:
        return None
    try:
        values = await AdminClient(client).topic_values(VALIDATION, topics)
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


async def _reach(broker: AdvertisedBroker, how: _Client) -> Reach:
    """Connect to an advertised address, as every client does after its first Metadata response."""
    try:
        connection = await Connection.open(
            broker.host,
            broker.port,
            client_id=CLIENT_ID,
            timeout_s=_CONNECT_TIMEOUT_S,
            security=how.security,
        )
    except ClientError as error:
        found = await diagnose(
            broker.host, broker.port, how.security, how.file, error, _CONNECT_TIMEOUT_S
        )
        reasons = () if found is None else connection_problems(found, how.given, how.now_s)
        return Reach(broker, str(error), found, tuple(reasons))
    await connection.aclose()
    return Reach(broker, None)
