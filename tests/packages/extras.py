"""Each extra, installed in a fresh environment and used for what it is there for."""

from __future__ import annotations

import os
import shlex
import shutil
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.testing.certificates import CertificateAuthority
from tests.migrate.old_scheme import old_topic
from tests.otel.receiver import Receiver
from tests.packages import checks
from tests.packages.building import ROOT
from tests.packages.environments import CommandFailedError, Environment, free_port
from tests.pipeline.archive.tables.archives import Archived, table_rows
from tests.seaweedfs.binary import fetch
from tests.seaweedfs.cluster import Cluster, Setup
from tests.security.oauth.issuing import AUDIENCE, ISSUER, claims, key_set
from tests.security.oauth.issuing import token as signed
from tests.state.servers import MariadbServer, NoServerError, PostgresqlServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.packages.building import Built

OF_THE_PROJECT = frozenset({"test", "check", "examples", "fuzz"})
"""Extras of those who work on kgw."""

_SPARK = """
from kgw.pipeline.session import session

spark = session("extras")
rows = (
    spark.read.format("kgw")
    .option("kafka.bootstrap.servers", "{bootstrap}")
    .option("subscribe", "greetings")
    .load()
)
print([bytes(row.value).decode() for row in rows.select("value").collect()])
spark.stop()
"""
PIPELINE = {
    "archive": "archive --topic greetings --out archive {server}",
    "lag": "lag --archive archive {server}",
    "audit": "audit --archive archive --level 3 {server}",
    "sql": "sql 'select count(*) from greetings' --archive archive {server}",
    "backfill": "backfill --archive archive --topic greetings --to again {server}",
    "backfill --sql": "backfill --archive archive --topic greetings --to queried --staging rows"
    " --sql 'select key, value from greetings' {server}",
    "merge": "merge --archive archive",
    "compact": "compact --archive archive --topic greetings --min-dirty-ratio 0",
    "retain": "retain --archive archive --topic greetings --max-age PT1H {server}",
    "migrate": "migrate --plan plan --ledger {ledger} --positions {positions} {server}",
}
"""Every command that the extra `spark` promises, in an order in which each has something to do."""


def declared() -> dict[str, list[str]]:
    """Return every extra with what it asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return extras


def of_users() -> list[str]:
    """Return the extras that are for who uses kgw."""
    return sorted(declared().keys() - OF_THE_PROJECT)


def use(extra: str, environment: Environment, folder: Path, *, is_small: bool) -> str:
    """Run the commands that an extra is there for, or a small one of them; return which."""
    uses = [_SMALL[extra]] if is_small and extra in _SMALL else _USES.get(extra, [_serves])
    for one in uses:
        one(environment, folder)
    return ", ".join((one.__doc__ or "").rstrip(".").lower() for one in uses)


def path_of(extra: str) -> str:
    """Return the folders of other programs that an extra needs. CommandFailedError without Java."""
    return _path_of_java() if extra in {"spark", "all"} else ""


def extra_runs(extra: str, built: Built, folder: Path) -> str:
    """Install an extra, and use it."""
    environment = Environment(folder / extra, path=path_of(extra))
    # pyspark is published as an sdist alone; it is Python.
    only_that = ["--no-binary", "pyspark"] if extra in {"spark", "all"} else []
    install_s = environment.install(*only_that, f"{built.wheel}[{extra}]")
    _keeps_to_this_kgw(environment, extra)
    done = use(extra, environment, folder / f"{extra}-data", is_small=False)
    return f"installed in {install_s:.0f} s; {done}"


def _keeps_to_this_kgw(environment: Environment, extra: str) -> None:
    """Do what messages tell of a missing extra: pip keeps the kgw that is installed."""
    before = environment.run("kgw", "--version")
    environment.install(f"kgw-broker[{extra}]")
    assert before == environment.run("kgw", "--version")


def _serves(environment: Environment, folder: Path) -> None:
    """Served from a data directory."""
    with environment.serving(folder / "served") as server:
        checks.round_trip(environment, server)


def _keeps_state_in_postgresql(environment: Environment, folder: Path) -> None:
    """Served with its state in PostgreSQL."""
    _keeps_state(PostgresqlServer, environment, folder / "postgresql")


def _keeps_state_in_mariadb(environment: Environment, folder: Path) -> None:
    """Served with its state in MariaDB."""
    _keeps_state(MariadbServer, environment, folder / "mariadb")


def _keeps_state(
    kind: type[PostgresqlServer | MariadbServer], environment: Environment, folder: Path
) -> None:
    try:
        database = kind()
    except NoServerError as error:
        raise CommandFailedError(str(error)) from None
    try:
        url = f"kgw.state.url={database.url(database.new_place())}"
        for _ in range(2):
            with environment.serving(folder, "--set", url) as server:
                listed = environment.run("kgw", "topics", "list", "-b", server.bootstrap)
                if "greetings" not in listed:
                    checks.round_trip(environment, server)
        assert "greetings" in listed, listed
    finally:
        database.remove()


def _keeps_records_in_seaweedfs(environment: Environment, folder: Path) -> None:
    """Served with its records in a real SeaweedFS."""
    fetch()
    folder.mkdir(exist_ok=True)
    with Cluster(folder / "seaweedfs", Setup()).running() as cluster:
        url = cluster.url(cluster.new_namespace())
        with environment.serving(folder / "seaweedmq", "--backend", url) as server:
            checks.round_trip(environment, server)


def _exports_metrics(environment: Environment, folder: Path) -> None:
    """Exported metrics over OTLP."""
    with Receiver() as receiver:
        endpoint = f"kgw.otel.endpoint={receiver.endpoint}"
        with environment.serving(folder / "otel", "--set", endpoint) as server:
            checks.round_trip(environment, server)
        while not receiver.exports.empty():
            last = receiver.exports.get()
    assert last.metrics["kgw_appended_records_total"].sum.data_points[0].as_double


def _speaks_tls(environment: Environment, folder: Path) -> None:
    """Served with a PKCS12 keystore, and with a rule for the names in certificates."""
    folder.mkdir(exist_ok=True)
    authority = CertificateAuthority("an authority", time.time())
    keystore, truststore = folder / "server.p12", folder / "ca.pem"
    keystore.write_bytes(authority.issue_server(["127.0.0.1"]).keystore_pkcs12("keystore-word"))
    truststore.write_text(authority.truststore_pem)
    (folder / "client.pem").write_text(authority.issue_client([("CN", "packages")]).keystore_pem())
    properties = folder / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={truststore}\nssl.keystore.location={folder / 'client.pem'}\n"
    )
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": truststore,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/U",
    }
    secrets = folder / "secrets.toml"
    secrets.write_text('"ssl.keystore.password" = "keystore-word"\n')
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    given += ["--config", str(secrets)]
    with environment.serving(folder / "tls", "--listen", f"SSL://{address}", *given):
        client = ["-b", address, "--command-config", str(properties)]
        environment.run("kgw", "topics", "create", "encrypted", *client)
        assert "encrypted" in environment.run("kgw", "topics", "list", *client)


def _takes_tokens(environment: Environment, folder: Path) -> None:
    """Logged a client in with a signed token."""
    folder.mkdir(exist_ok=True)
    keys, token = folder / "keys.json", folder / "token"
    keys.write_bytes(key_set())
    now_s = int(time.time())
    token.write_text(signed(payload=claims(iat=now_s, nbf=now_s, exp=now_s + 600)))
    properties = folder / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "kgw.sasl.oauthbearer.jwks.file": keys,
        "kgw.sasl.oauthbearer.without.tls": "true",
    }
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    listener = f"SASL_PLAINTEXT://{address}"
    with environment.serving(folder / "tokens", "--listen", listener, *given):
        client = ["-b", address, "--command-config", str(properties)]
        environment.run("kgw", "topics", "create", "for-alice", *client)
        assert "for-alice" in environment.run("kgw", "topics", "list", *client)


def _is_read_by_spark(environment: Environment, folder: Path) -> None:
    """Read by Spark with format("kgw")."""
    with environment.serving(folder / "spark") as server:
        checks.round_trip(environment, server)
        program = _SPARK.format(bootstrap=server.bootstrap)
        read = environment.run("python", "-c", program, cwd=folder)
    assert "['hello']\n" == read, read


def _runs_the_pipeline(environment: Environment, folder: Path) -> None:
    """Ran every command of `kgw pipeline` that needs Spark."""
    _run_pipeline(environment, folder / "pipeline", PIPELINE)


def _queries_into_a_topic(environment: Environment, folder: Path) -> None:
    """Archived a topic, and wrote the rows of a query to another."""
    _run_pipeline(environment, folder / "pipeline", ("archive", "backfill --sql"))


def _run_pipeline(environment: Environment, folder: Path, commands: Iterable[str]) -> None:
    topic = old_topic("old")
    ledger, positions = topic.write(folder / "filer")
    with environment.serving(folder / "data") as server:
        where = ["--bootstrap", server.bootstrap]
        for name in ("greetings", "again", "queried", topic.name):
            environment.run("kgw", "topics", "create", name, "--partitions", "2", *where)
        records = folder / "records"
        records.write_text("".join(f"key-{number % 7}\tvalue\n" for number in range(100)))
        produce = ["kgw", "produce", "greetings", "--file", str(records), "--key-separator", "\t"]
        environment.run(*produce, *where)
        for name in commands:
            given = PIPELINE[name].format(
                server=shlex.join(where), ledger=ledger, positions=positions
            )
            environment.run("kgw", "pipeline", *shlex.split(given), cwd=folder)
        if "backfill --sql" in commands:
            read = ["kgw", "consume", "queried", "--max-records", "100", *where]
            assert 100 * "value\n" == environment.run(*read)


def _publishes_delta_tables(environment: Environment, folder: Path) -> None:
    """Published a Delta table of an archive."""
    _publish("delta", environment, folder / "delta")


def _publishes_iceberg_tables(environment: Environment, folder: Path) -> None:
    """Published an Iceberg table of an archive."""
    _publish("iceberg", environment, folder / "iceberg")


def _publish(kind: str, environment: Environment, folder: Path) -> None:
    archived = Archived(folder)
    archived.append(0, 10)
    environment.run("kgw", "pipeline", "publish", "--archive", str(folder), "--table", kind)
    assert archived.rows() == table_rows(archived.generation, kind)


_USES: dict[str, list[Callable[[Environment, Path], None]]] = {
    "postgresql": [_keeps_state_in_postgresql],
    "mysql": [_keeps_state_in_mariadb],
    "seaweedmq": [_keeps_records_in_seaweedfs],
    "otel": [_exports_metrics],
    "tls": [_speaks_tls],
    "oauth": [_takes_tokens],
    "spark": [_is_read_by_spark, _runs_the_pipeline],
    "delta": [_publishes_delta_tables],
    "iceberg": [_publishes_iceberg_tables],
}
_USES["all"] = [one for uses in _USES.values() for one in uses]
_SMALL = {"spark": _queries_into_a_topic}


def _path_of_java() -> str:
    """Return the folders that Spark's scripts need: of java, and of the shell's tools."""
    java = shutil.which("java")
    if java is None:
        raise CommandFailedError("Spark needs a Java runtime, and there is none on PATH")
    return f"{Path(java).parent}:{os.defpath.strip(':')}"
