"""Exports of a gateway to a receiver over a socket: the schedule, failures, the end."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from kgw import __version__
from kgw.config import Config, ConfigError
from kgw.otel.exporter import Exporter
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.support import create_topic
from tests.otel.receiver import Export, Receiver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

LIMIT_S = 10.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with Receiver() as running:
        yield running


@pytest.fixture
async def gateway(receiver: Receiver) -> AsyncIterator[InProcessGateway]:
    """A gateway that is told to export to the receiver."""
    async with InProcessGateway(Config.of(otel_endpoint=receiver.endpoint)) as running:
        yield running


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """Return what the exporter has logged: events with their fields."""
    return [
        (one.getMessage(), one.__dict__["kgw_fields"])
        for one in caplog.records
        if one.name == "kgw.otel.exporter"
    ]


def next_export(receiver: Receiver) -> Export:
    """Return what came, which must have come."""
    return receiver.exports.get_nowait()


async def test_an_export(receiver: Receiver, gateway: InProcessGateway) -> None:
    """Numbers go to /v1/metrics with who counts them, and since when."""
    await create_topic(gateway)
    exporter = Exporter(gateway.gateway)
    await exporter.export(LIMIT_S)
    export = next_export(receiver)
    assert ("/v1/metrics", "application/x-protobuf") == (
        export.path,
        export.headers["Content-Type"],
    )
    assert {
        "service.name": "kgw",
        "service.version": __version__,
        "service.instance.id": f"{socket.gethostname()}:9092",
    } == export.resource
    (point,) = export.metrics["kgw_requests_total"].sum.data_points
    assert ("CREATE_TOPICS", 1.0) == (point.attributes[0].value.string_value, point.as_double)
    start_ms = gateway.clock.wall_ms()
    assert start_ms * 1_000_000 == point.start_time_unix_nano
    assert 0 == gateway.metrics.otel_export_failures


async def test_attributes_and_headers(receiver: Receiver, tmp_path: Path) -> None:
    """What is configured goes with each export; headers are read anew."""
    headers_file = tmp_path / "headers"
    headers_file.write_text("Authorization: Bearer first\n\nX-Tenant: a: b\n")
    config = Config.of(
        otel_endpoint=f"{receiver.endpoint}/api/",
        otel_headers_file=str(headers_file),
        otel_resource_attributes=("service.name=orders", "site=north"),
    )
    async with InProcessGateway(config) as gateway:
        exporter = Exporter(gateway.gateway)
        await exporter.export(LIMIT_S)
        await asyncio.to_thread(headers_file.write_text, "Authorization: Bearer second")
        await exporter.export(LIMIT_S)
    first, second = next_export(receiver), next_export(receiver)
    assert ("/api/v1/metrics", "Bearer first", "a: b") == (
        first.path,
        first.headers["Authorization"],
        first.headers["X-Tenant"],
    )
    assert ("Bearer second", None) == (
        second.headers["Authorization"],
        second.headers["X-Tenant"],
    )
    assert ("orders", "north") == (first.resource["service.name"], first.resource["site"])


async def test_the_schedule(receiver: Receiver, gateway: InProcessGateway) -> None:
    """The first export comes at once, the next one when the interval has passed, and one more."""
    exporter = Exporter(gateway.gateway)
    exporter.start()
    exporter.start()
    await asyncio.to_thread(receiver.exports.get)
    assert receiver.exports.empty()
    gateway.manual_clock.advance(60.0)
    await asyncio.to_thread(receiver.exports.get)
    await exporter.aclose(flush_s=LIMIT_S)
    next_export(receiver)
    await exporter.aclose(flush_s=LIMIT_S)
    assert receiver.exports.empty()


async def test_no_time_is_left(receiver: Receiver, gateway: InProcessGateway) -> None:
    """Where the end of the process has no time for a last export, there is none."""
    exporter = Exporter(gateway.gateway)
    exporter.start()
    await asyncio.to_thread(receiver.exports.get)
    await exporter.aclose()
    assert receiver.exports.empty()


async def test_an_outage_is_told_once(
    receiver: Receiver, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it begins and one when it is over; failures are counted and exported."""
    caplog.set_level(logging.INFO, "kgw.otel.exporter")
    exporter = Exporter(gateway.gateway)
    receiver.status, receiver.answer = 503, b"busy"
    for _ in range(3):
        await exporter.export(LIMIT_S)
    receiver.status, receiver.answer = 200, b""
    await exporter.export(LIMIT_S)
    (first, failed), (second, again) = told(caplog)
    assert ("metrics could not be exported", "metrics are exported again") == (first, second)
    assert ("HTTP status 503: busy", 3) == (str(failed["why"]), again["failed"])
    last = [next_export(receiver) for _ in range(4)][-1]
    (point,) = last.metrics["kgw_otel_export_failures_total"].sum.data_points
    assert 3.0 == point.as_double


@pytest.mark.parametrize(
    ("status", "location", "answer", "expected"),
    [
        (302, "/elsewhere", b"", "HTTP status 302: Found"),
        (204, "", b"", "HTTP status 204"),
        (200, "", b"<html>", "the answer is no answer of OTLP"),
        (
            200,
            "",
            ExportMetricsServiceResponse(
                partial_success=ExportMetricsPartialSuccess(
                    rejected_data_points=2, error_message="too old"
                )
            ).SerializeToString(),
            "2 numbers were refused: too old",
        ),
    ],
)
async def test_what_is_no_success(
    receiver: Receiver,
    gateway: InProcessGateway,
    caplog: pytest.LogCaptureFixture,
    status: int,
    location: str,
    answer: bytes,
    expected: str,
) -> None:
    """Only an answer of OTLP that refuses nothing counts as taken."""
    receiver.status, receiver.location, receiver.answer = status, location, answer
    await Exporter(gateway.gateway).export(LIMIT_S)
    assert [expected] == [str(fields["why"]) for _, fields in told(caplog)]


async def test_nobody_listens(
    receiver: Receiver, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """A receiver that is not there is a failure, said in the system's words."""
    exporter = Exporter(gateway.gateway)
    receiver.close()
    await exporter.export(LIMIT_S)
    ((_, fields),) = told(caplog)
    assert "Connection refused" in str(fields["why"])


async def test_a_receiver_that_does_not_answer(
    receiver: Receiver, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs one thread at most, and holds nobody: the next export finds the first under way."""
    receiver.may_answer.clear()
    exporter = Exporter(gateway.gateway)
    await asyncio.wait_for(exporter.export(0.01), patience.seconds(LIMIT_S))
    await exporter.export(LIMIT_S)
    assert 2 == gateway.metrics.otel_export_failures
    ((_, fields),) = told(caplog)
    assert "no answer within 0.01 s" == str(fields["why"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file or directory"),
        ("Authorization Bearer secret", "line 1 is not NAME: VALUE of an HTTP header"),
        ("A: b\nC\x07: secret", "line 2 is not NAME: VALUE of an HTTP header"),
    ],
)
async def test_headers_that_cannot_be_read(
    receiver: Receiver, tmp_path: Path, content: str | None, expected: str
) -> None:
    """They end the start with one line, which does not tell what is in the file."""
    path = tmp_path / "headers"
    if content is not None:
        path.write_text(content)
    config = Config.of(otel_endpoint=receiver.endpoint, otel_headers_file=str(path))
    async with InProcessGateway(config) as gateway:
        with pytest.raises(ConfigError) as error:
            await asyncio.to_thread(Exporter(gateway.gateway).read_headers)
    assert f"kgw.otel.headers.file: {path}: {expected}" == str(error.value)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("collector:4318", "a URL is expected"),
        ("ftp://collector", "a URL is expected"),
        ("http://", "a URL is expected"),
        ("http://collector:x", "Port could not be cast"),
        ("http://collector?a=b", "without ? and #"),
        ("http://user:word@collector", "kgw.otel.headers.file"),
        ("http://collector:4318/v1/metrics", "leave it out"),
    ],
)
def test_endpoints_that_are_refused(endpoint: str, reason: str) -> None:
    """Each says what is wrong with it."""
    with pytest.raises(ConfigError, match=r"kgw\.otel\.endpoint") as error:
        Config.of(otel_endpoint=endpoint)
    assert reason in str(error.value)


def test_attributes_that_are_refused() -> None:
    """An attribute is KEY=VALUE."""
    with pytest.raises(ConfigError, match="'site' is not KEY=VALUE"):
        Config.of(otel_resource_attributes=("site",))
