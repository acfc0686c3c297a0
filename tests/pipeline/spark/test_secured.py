"""`format("kgw")` and jobs on a listener with TLS, logins and access rules."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from kgw.cli.main import main
from kgw.client.client_properties import ALIASES, SECRETS
from kgw.testing.broker import Broker
from kgw.testing.security import BrokerSecurity
from tests.client.certificates import make_authority
from tests.pipeline.spark.streams import run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow

CANARY = "c4nary-s3cret"
JOB = "kgw-backfill-copy"
SECURITY = (
    BrokerSecurity("SASL_SSL", users=dict.fromkeys(("reader", "writer", "loader"), CANARY))
    .allow("reader", "READ", topic="orders")
    .allow("writer", "WRITE", topic=["copies", "once"])
    .allow("writer", "READ", topic="once")
    .allow("writer", "WRITE", transactional_id="query-1", prefixed=True)
    .allow("writer", "READ", group="kgw-sink-query-1")
    .allow("loader", "READ", "DESCRIBE_CONFIGS", topic="orders")
    .allow("loader", "READ", group=["kgw-archive", JOB])
    .allow("loader", "READ", "WRITE", "DESCRIBE_CONFIGS", topic="again")
    .allow("loader", "WRITE", transactional_id=f"{JOB}-", prefixed=True)
)
TOPICS = {"orders": 2, "copies": 1, "once": 1, "again": 2, "restored": 2}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker whose users may do what the tests need, and no more."""
    with Broker(topics=TOPICS, security=SECURITY) as made:
        for partition in (0, 1):
            made.produce("orders", [f"{partition}-{index}" for index in range(50)])
        yield made


def options(broker: Broker, user: str, **more: str) -> dict[str, str]:
    """Return the options of a query by a user."""
    found = {f"kafka.{name}": value for name, value in broker.client_config(user).items()}
    return {**found, **{f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}}


def read(spark: SparkSession, given: dict[str, str]) -> DataFrame:
    """Return the orders."""
    return spark.read.format("kgw").options(**given).option("subscribe", "orders").load()


def stored(broker: Broker, topic: str) -> list[bytes]:
    """Return the committed values of a topic, in an order of their own."""
    return sorted(record.value or b"" for record in broker.records(topic, read_committed=True))


def jaas(user: str) -> dict[str, str]:
    """Return a login as Java's clients name it."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{module} required username="{user}" password="{CANARY}";',
    }


def refused(spark: SparkSession, given: dict[str, str]) -> str:
    """Return why the orders cannot be read."""
    with pytest.raises(PySparkException) as raised:
        read(spark, given).count()
    assert CANARY not in str(raised.value)
    return str(raised.value)


def test_a_batch_is_read_and_written(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """By users with the rights for that alone, with files and with the texts themselves."""
    trust = tmp_path / "ca.pem"
    trust.write_text(broker.authority_pem)
    source = {
        "kafka.bootstrap.servers": broker.bootstrap,
        **jaas("reader"),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(trust),
    }
    orders = read(spark, source)
    sink = orders.select("key", "value").write.format("kgw").mode("append")
    sink.options(**options(broker, "writer")).option("topic", "copies").save()
    assert stored(broker, "orders") == stored(broker, "copies")


def test_a_stream_writes_exactly_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Its transactions and its group are of a name for which there are rules."""
    source = spark.readStream.format("kgw").options(**options(broker, "reader"))
    orders = source.options(subscribe="orders", startingOffsets="earliest").load()
    sink = orders.select("value").writeStream.format("kgw").options(**options(broker, "writer"))
    sink = sink.option("topic", "once").trigger(availableNow=True)
    sink = sink.options(exactlyOnce="true", **{"kafka.transactional.id": "query-1"})
    query = run_to_the_end(sink.option("checkpointLocation", str(tmp_path)).start)
    assert stored(broker, "orders") == stored(broker, "once")
    assert CANARY not in str(query.recentProgress)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes()


def test_who_may_not_read_is_told_so(spark: SparkSession, broker: Broker) -> None:
    """A wrong password, a user without the right, and a server that nobody vouches for."""
    wrong = refused(spark, options(broker, "reader", sasl_password=f"{CANARY}-no"))
    assert "refused the login of reader: SASL_AUTHENTICATION_FAILED" in wrong
    denied = refused(spark, options(broker, "writer"))
    assert re.search("TOPIC_AUTHORIZATION_FAILED|there is no topic orders", denied)
    strange = refused(spark, options(broker, "reader", ssl_ca_pem=make_authority().pem))
    assert f"{broker.bootstrap} is not trusted" in strange
    assert "kafka.sasl.mechanism: the mechanism is refused" in refused(
        spark, options(broker, "reader", sasl_mechanism="GSSAPI")
    )


def test_who_may_not_write_is_told_so(spark: SparkSession, broker: Broker) -> None:
    """By the task that finds out."""
    rows = spark.range(1).selectExpr("cast(id as string) as value")
    sink = rows.write.format("kgw").mode("append").options(**options(broker, "reader"))
    with pytest.raises(PySparkException) as raised:
        sink.option("topic", "copies").save()
    assert "cannot get a producer id: CLUSTER_AUTHORIZATION_FAILED" in str(raised.value)
    assert CANARY not in str(raised.value)


def kgw(broker: Broker, folder: Path, *arguments: str) -> str:
    """Run a command of the pipeline as the user loader; it must succeed."""
    file = folder / "client.properties"
    trust = folder / "ca.pem"
    trust.write_text(broker.authority_pem)
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=loader\n"
        f"sasl.password={CANARY}\nssl.truststore.location={trust}\n"
    )
    file.chmod(0o600)
    given = ("pipeline", *arguments, "-b", broker.bootstrap, "--command-config", str(file))
    result = CliRunner().invoke(main, given, prog_name="kgw")
    assert 0 == result.exit_code, result.output
    assert CANARY not in result.output
    return result.stdout


@pytest.mark.usefixtures("spark")
def test_a_topic_is_archived_and_loaded_again(broker: Broker, tmp_path: Path) -> None:
    """The tasks log in as the command does."""
    archive = str(tmp_path / "archive")
    kgw(broker, tmp_path, "archive", "-t", "orders", "--out", archive)
    kgw(broker, tmp_path, "audit", "--archive", archive, "--level", "3")
    load = ("backfill", "--archive", archive, "-t", "orders", "--to", "again", "--job", "copy")
    told = json.loads(kgw(broker, tmp_path, *load, "--json"))
    assert 100 == sum(one["records"] for one in told["partitions"])
    assert stored(broker, "orders") == stored(broker, "again")
    query = ("sql", "select count(*) as n from orders", "--json")
    assert [{"n": 100}] == json.loads(kgw(broker, tmp_path, *query))["rows"]


def test_no_plan_shows_a_secret(spark: SparkSession, served: ServedTopics) -> None:
    """Not even a private key, which Spark would take for any other option."""
    served.create("shown")
    secrets = {f"kafka.{name}": CANARY for name in SECRETS - ALIASES.keys()}
    given = {"kafka.bootstrap.servers": served.address, "kafka.security.protocol": "PLAINTEXT"}
    rows = spark.range(1).selectExpr("cast(id as string) as value")
    rows.write.format("kgw").mode("append").options(topic="shown", **given, **secrets).save()
    source = {"subscribe": "shown", **given, **secrets}
    spark.read.format("kgw").options(**source).load().createOrReplaceTempView("shown")
    with redirect_stdout(io.StringIO()) as told:
        spark.readStream.format("kgw").options(**source).load().explain("extended")
    # What Spark's pages and its event log show of each query.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - no other way
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()  # noqa: SLF001
    plans = [executions.apply(at).physicalPlanDescription() for at in range(executions.size())]
    for shown in (told.getvalue(), "\n".join(plans)):
        assert "kafka.ssl.keystore.key=*********(redacted)" in shown
        assert CANARY not in shown
