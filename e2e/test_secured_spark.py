"""Spark's own `kafka` source and sink, and `format("kgw")`, where there are logins and rules.

Both get the same options. Users identify themselves by each SASL mechanism on SASL_SSL, by a token
of an authorization server, by a delegation token, or by a certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.test_spark_kafka_source import spark
from tests.interop.secured import (
    BY_CERTIFICATE,
    BY_PASSWORD,
    BY_TOKEN,
    READER,
    WRITER,
    SecuredGateway,
    Way,
    user_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

FORMATS = ("kafka", "kgw")
SCRAM = BY_PASSWORD[2]
MODULES = "org.apache.kafka.common.security"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The system property without which Kafka's clients ask no URL for a token."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    """A gateway with logins of every kind, and with access rules."""
    folder = tmp_path_factory.mktemp("secured")
    secret = {"KGW_DELEGATION_TOKEN_SECRET_KEY": "a secret of more than 32 characters"}
    with SecuredGateway(folder, environment=secret) as gateway:
        yield gateway


def scram_or_plain(user: str, password: str, mechanism: str, more: str = "") -> dict[str, str]:
    """Return the properties of a login with a password."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": (
            f'{MODULES}.{module} required username="{user}" password="{escaped}"{more};'
        ),
    }


def as_options(
    gateway: SecuredGateway, listener: str, properties: dict[str, str]
) -> dict[str, str]:
    """Return Spark's options for a connection: Java's properties behind `kafka.`."""
    given = {"bootstrap.servers": gateway.address(listener), **properties}
    for store in ("ssl.truststore", "ssl.keystore"):
        if f"{store}.location" in given:
            given[f"{store}.type"] = "PEM"
    return {f"kafka.{name}": value for name, value in given.items()}


def options(gateway: SecuredGateway, way: Way, role: str, **wrong: Any) -> dict[str, str]:
    """Return the options with which a user of a way connects."""
    given = gateway.security(way, role, **wrong)
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", "")
    if user is not None:
        given |= scram_or_plain(user, password, given["sasl.mechanism"])
    return as_options(gateway, way.listener, given)


def token_options(gateway: SecuredGateway, login: dict[str, str]) -> dict[str, str]:
    """Return the options with which a user logs in without a password."""
    trust = gateway.security(SCRAM, READER)["ssl.truststore.location"]
    connection = {"security.protocol": "SASL_SSL", "ssl.truststore.location": trust}
    return as_options(gateway, "SASL_SSL", {**connection, **login})


def check_rows(
    spark: SparkSession,
    name: str,
    topic: str,
    folder: Path,
    *,
    writer: dict[str, str],
    reader: dict[str, str],
) -> None:
    """Write a hundred rows as the writer; read them as the reader, and stream them to a file."""
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format(name).mode("append").options(**writer, topic=topic).save()
    read = {**reader, "subscribe": topic, "startingOffsets": "earliest"}
    assert 100 == spark.read.format(name).options(**read).load().count()
    query = (
        spark.readStream.format(name)
        .options(**read)
        .load()
        .select("value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert 100 == spark.read.parquet(str(folder / "rows")).count()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("way", [*BY_PASSWORD, BY_CERTIFICATE], ids=lambda way: way.name)
def test_rows_are_written_and_read(
    spark: SparkSession, secured: SecuredGateway, tmp_path: Path, way: Way, name: str
) -> None:
    """With each mechanism, and with a certificate."""
    topic = f"{way.prefix}-{name}"
    secured.create_topic(topic)
    writer, reader = options(secured, way, WRITER), options(secured, way, READER)
    check_rows(spark, name, topic, tmp_path, writer=writer, reader=reader)


@pytest.mark.parametrize("name", FORMATS)
def test_tokens_of_an_authorization_server(
    spark: SparkSession, secured: SecuredGateway, tmp_path: Path, name: str
) -> None:
    """OAUTHBEARER, with tokens in files."""
    topic = f"{BY_TOKEN.prefix}-{name}"
    secured.create_topic(topic)
    given = {}
    for role in (WRITER, READER):
        login = {
            **secured.security(BY_TOKEN, role),
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": (
                f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        }
        given[role] = as_options(secured, BY_TOKEN.listener, login)
    urls = ",".join(one["kafka.sasl.oauthbearer.token.endpoint.url"] for one in given.values())
    spark.sql(
        f"select reflect('java.lang.System', 'setProperty', '{ALLOWED_URLS}', '{urls}')"
    ).collect()
    check_rows(spark, name, topic, tmp_path, writer=given[WRITER], reader=given[READER])


@pytest.mark.parametrize("name", FORMATS)
def test_delegation_tokens(
    spark: SparkSession, secured: SecuredGateway, tmp_path: Path, name: str
) -> None:
    """They log in their owners."""
    topic = f"{SCRAM.prefix}-{name}-token"
    secured.create_topic(topic)
    given = {}
    for role in (WRITER, READER):
        made = secured.create_token(user_name(SCRAM, role))
        login = scram_or_plain(made.token_id, made.password, "SCRAM-SHA-512", ' tokenauth="true"')
        given[role] = token_options(secured, login)
    check_rows(spark, name, topic, tmp_path, writer=given[WRITER], reader=given[READER])


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
    """Spark's source tells a wrong password, another authority, and a user who may not read."""
    topic = f"{SCRAM.prefix}-{expected}"
    secured.create_topic(topic)
    row = spark.range(1).selectExpr("cast(id as string) as value")
    row.write.format("kafka").options(**options(secured, SCRAM, WRITER), topic=topic).save()
    read = {**options(secured, SCRAM, role, **wrong), "subscribe": topic}
    with pytest.raises(Exception, match=expected):
        spark.read.format("kafka").options(**read).load().count()


def test_a_sink_that_is_refused(spark: SparkSession, secured: SecuredGateway) -> None:
    """Spark's sink tells that a user may not write."""
    topic = f"{SCRAM.prefix}-read-only"
    secured.create_topic(topic)
    rows = spark.range(1).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match="AuthorizationException"):
        rows.write.format("kafka").options(**options(secured, SCRAM, READER), topic=topic).save()
