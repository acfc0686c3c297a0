"""Spark's own `kafka` source and sink on SASL_SSL and with a certificate, with access rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.test_spark_kafka_source import spark
from tests.interop.secured import READER, WAYS, WRITER, SecuredGateway, Way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

MODULES = {"PLAIN": "plain.PlainLoginModule"}
SCRAM = WAYS[2]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    """A gateway with logins and access rules."""
    with SecuredGateway(tmp_path_factory.mktemp("secured")) as gateway:
        yield gateway


def options(properties: dict[str, str]) -> dict[str, str]:
    """Return Spark's options for a connection: Java's properties behind `kafka.`."""
    given = dict(properties)
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", "")
    if user is not None:
        module = MODULES.get(given["sasl.mechanism"], "scram.ScramLoginModule")
        escaped = password.replace("\\", "\\\\").replace('"', '\\"')
        given["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required"
            f' username="{user}" password="{escaped}";'
        )
    for store in ("ssl.truststore", "ssl.keystore"):
        if f"{store}.location" in given:
            given[f"{store}.type"] = "PEM"
    return {f"kafka.{name}": value for name, value in given.items()}


def of(gateway: SecuredGateway, way: Way, role: str, **wrong: str) -> dict[str, str]:
    """Return the options with which a user connects."""
    return {
        "kafka.bootstrap.servers": gateway.address(way.listener),
        **options(gateway.security(way, role, **wrong)),
    }


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_rows_are_written_and_read(
    spark: SparkSession, secured: SecuredGateway, tmp_path: Path, way: Way
) -> None:
    """The sink as the writer; a batch, and a stream to a file, as the reader."""
    topic = f"{way.prefix}-spark"
    secured.create_topic(topic)
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("kafka").options(**of(secured, way, WRITER), topic=topic).save()
    read = {**of(secured, way, READER), "subscribe": topic, "startingOffsets": "earliest"}
    assert 100 == spark.read.format("kafka").options(**read).load().count()
    query = (
        spark.readStream.format("kafka")
        .options(**read)
        .load()
        .select("value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert 100 == spark.read.parquet(str(tmp_path / "rows")).count()


@pytest.mark.parametrize(
    ("role", "wrong", "expected"),
    [
        (READER, {"password": "wrong"}, "SaslAuthenticationException"),
        (READER, {"trusted": "untrusted"}, "SslAuthenticationException"),
        (WRITER, {}, "TopicAuthorizationException"),
    ],
    ids=["password", "authority", "right"],
)
def test_a_batch_that_is_refused(
    spark: SparkSession, secured: SecuredGateway, role: str, wrong: dict[str, str], expected: str
) -> None:
    """A wrong password, another authority, and a user who may not read fail with the reason."""
    topic = f"{SCRAM.prefix}-{expected}"
    secured.create_topic(topic)
    spark.range(1).selectExpr("cast(id as string) as value").write.format("kafka").options(
        **of(secured, SCRAM, WRITER), topic=topic
    ).save()
    read = {**of(secured, SCRAM, role, **wrong), "subscribe": topic}
    with pytest.raises(Exception, match=expected):
        spark.read.format("kafka").options(**read).load().count()


def test_a_sink_that_is_refused(spark: SparkSession, secured: SecuredGateway) -> None:
    """A user who may not write."""
    topic = f"{SCRAM.prefix}-read-only"
    secured.create_topic(topic)
    rows = spark.range(1).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match="AuthorizationException"):
        rows.write.format("kafka").options(**of(secured, SCRAM, READER), topic=topic).save()
