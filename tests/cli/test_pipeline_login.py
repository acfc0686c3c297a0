"""Commands of the pipeline log in as --command-config says, and need no more rights than told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID

import click
import pytest

from kgw.cli.pipeline.clusters import other_cluster
from kgw.cli.shared.command_config import load_client_properties
from kgw.cli.shared.errors import ExitCode
from kgw.client import ClientError
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs import restore
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.loading import begin, hand_over
from kgw.testing.broker import Broker
from kgw.testing.security import BrokerSecurity
from tests.cli.conftest import Commands
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "c4nary-s3cret"
SECURITY = (
    BrokerSecurity("SASL_SSL", users={"archiver": CANARY, "auditor": CANARY, "nobody": CANARY})
    .allow("archiver", "READ", "DESCRIBE_CONFIGS", topic="orders")
    .allow("archiver", "READ", group="kgw-archive")
    .allow("auditor", "READ", "DESCRIBE_CONFIGS", topic="orders")
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a topic of 20 records."""
    with Broker(topics={"orders": 1}, security=SECURITY) as made:
        made.produce("orders", [str(number) for number in range(20)])
        yield made


@pytest.fixture(scope="module")
def archive(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the topic, made by a user who may do no more than that."""
    root = tmp_path_factory.mktemp("archive")
    cluster = Cluster(broker.bootstrap, broker.client_config("archiver"))
    with cluster.client() as wire:
        job = ArchiveJob(wire, cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0)
        assert 20 == job.run_once("orders").records
    assert {("orders", 0): 20} == broker.committed("kgw-archive")
    return root


def config(folder: Path, broker: Broker, user: str, password: str | None = None) -> str:
    """Write a properties file with a truststore beside it, and return its path."""
    trust = folder / "ca.pem"
    trust.write_text(broker.authority_pem)
    properties = broker.client_config(user, password=password)
    del properties["ssl.ca.pem"]
    properties["ssl.truststore.location"] = str(trust)
    file = folder / f"{user}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def kgw(broker: Broker) -> Commands:
    """Commands that talk to the broker."""
    return Commands(broker.bootstrap)


def test_an_archive_is_compared_with_its_topic(
    kgw: Commands, broker: Broker, archive: Path, tmp_path: Path
) -> None:
    """By a user who may read the topic."""
    audit = ("pipeline", "audit", "--archive", str(archive), "--level", "3")
    login = ("--command-config", config(tmp_path, broker, "auditor"))
    assert [] == kgw.json(*audit, *login)["findings"]
    live = ("pipeline", "audit", "-t", "orders", "--level", "4", "--state", f"{tmp_path}/state")
    assert [] == kgw.json(*live, *login)["findings"]
    lag = kgw.json("pipeline", "lag", "--archive", str(archive), *login)
    assert {"read_lag": 0, "commit_lag": 0} == lag["totals"]
    history = kgw.json("pipeline", "lag", "--history", "-t", "orders", *login)
    assert 20 == sum(row["records"] for row in history["rows"])


def test_a_dry_run_says_what_would_be_archived(
    kgw: Commands, broker: Broker, archive: Path, tmp_path: Path
) -> None:
    """Spark is not started; the environment names the file as well."""
    assert archive.exists()
    command = ("pipeline", "archive", "-t", "orders", "--out", f"{tmp_path}/new", "--dry-run")
    environment = {"KGW_COMMAND_CONFIG": config(tmp_path, broker, "archiver")}
    told = json.loads(kgw.run(*command, "--json", environment=environment).stdout)
    assert [20] == [one["offsets"] for one in told["ranges"]]


def test_a_wrong_password_and_a_missing_right_are_told(
    kgw: Commands, broker: Broker, archive: Path, tmp_path: Path
) -> None:
    """In one line, without the password."""
    audit = ("pipeline", "audit", "--archive", str(archive), "--level", "3", "--command-config")
    wrong = kgw.fail(ExitCode.FAILED, *audit, config(tmp_path, broker, "auditor", "wrong"))
    assert "refused the login of auditor: SASL_AUTHENTICATION_FAILED" in wrong
    denied = kgw.fail(ExitCode.FAILED, *audit, config(tmp_path, broker, "nobody"))
    assert "there is no topic orders" in denied or "AUTHORIZATION_FAILED" in denied
    assert CANARY not in wrong + denied


def test_records_are_removed_by_a_user_who_may_delete_them(kgw: Commands, tmp_path: Path) -> None:
    """Of the log, up to where the archive begins."""
    with Broker(topics="orders", security=SECURITY) as broker:
        broker.produce("orders", [str(number) for number in range(20)])
        root = tmp_path / "archive"
        cluster = Cluster(broker.bootstrap, broker.client_config("archiver"))
        with cluster.client() as wire:
            options = ArchiveOptions()
            ArchiveJob(wire, cluster, root, Backwards(), options, now_ms=lambda: 0).run_once(
                "orders"
            )
        retain = ("pipeline", "retain", "--archive", str(root), "-t", "orders", "--log")
        login = ("--command-config", config(tmp_path, broker, "auditor"))
        limit = ("--before-offset", "20", "-b", broker.bootstrap)
        refused = kgw.run(*retain, *limit, *login)
        assert ExitCode.FAILED == refused.exit_code
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        broker.allow("auditor", "DELETE", topic="orders")
        kgw.succeed(*retain, *limit, *login)
        assert [] == broker.values("orders")


def test_an_archive_is_restored_by_a_user_with_few_rights(broker: Broker, archive: Path) -> None:
    """It may change the settings of the target, write there, and move its log's start."""
    (log,) = archive.glob("orders/*")
    security = BrokerSecurity("SASL_SSL", users={"loader": CANARY}).allow(
        "loader", "WRITE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", topic="restored"
    )
    with Broker(topics="restored", security=security) as target:
        cluster = Cluster(target.bootstrap, target.client_config("loader"))
        asked = restore.Restore(cluster, log, UUID(log.name), "restored")
        with cluster.client() as wire:
            begin(wire, asked)
            restore.run(wire, asked, Backwards())
            hand_over(wire, asked, restore.plan(wire, asked))
        assert broker.values("orders") == target.values("restored")


def test_a_topic_is_held_by_a_user_who_may_change_its_settings(
    broker: Broker, tmp_path: Path
) -> None:
    """A user who may only archive it is refused, by the server's word."""
    options = ArchiveOptions(group="held", is_held=True)

    def hold(user: str) -> None:
        cluster = Cluster(broker.bootstrap, broker.client_config(user))
        with cluster.client() as wire:
            job = ArchiveJob(wire, cluster, tmp_path, Backwards(), options, now_ms=lambda: 0)
            job.hold("orders")

    broker.allow("archiver", "READ", group="held")
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        hold("archiver")
    broker.allow("archiver", "ALTER_CONFIGS", topic="orders")
    hold("archiver")


def test_a_second_cluster_has_properties_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None without a file; a warning of the file is told with its first use."""
    file = tmp_path / "old.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username=alice\nsasl.password={CANARY}\n"
    )
    file.chmod(0o644)
    loaded = load_client_properties(str(file))
    assert CANARY not in repr(loaded)
    with click.Context(click.Command("any")):
        assert Cluster("h:1,i:2") == other_cluster([("h", 1), ("i", 2)], None)
        assert CANARY == other_cluster([("h", 1)], loaded).properties["sasl.password"]
    told = capsys.readouterr().err
    assert "everybody on this machine can read it: chmod 600" in told
    assert CANARY not in told
