"""`kgw serve` with `kgw.otel.endpoint`: exports from the start to the end, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.version import install_command
from tests.app.test_app import Serving, create_topic
from tests.otel.receiver import Receiver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_the_end_of_a_process_is_exported(tmp_path: Path) -> None:
    """One export at the start; one more at the end says what was counted since."""
    with Receiver() as receiver:
        arguments = ["--listen", "127.0.0.1:0", "--set", f"kgw.otel.endpoint={receiver.endpoint}"]
        serving = Serving(tmp_path / "data", *arguments)
        port = serving.port()
        receiver.exports.get()
        create_topic(port, "orders", partitions=1)
        code, errors = serving.end()
        last = receiver.exports.get_nowait()
    assert 0 == code
    events = [json.loads(one)["event"] for one in errors.splitlines()]
    assert ("stopped", False) == (events[-1], "metrics could not be exported" in events)
    points = last.metrics["kgw_requests_total"].sum.data_points
    counted = {one.attributes[0].value.string_value: one.as_double for one in points}
    assert 1.0 == counted["CREATE_TOPICS"]


@pytest.mark.parametrize(
    ("without", "settings", "expected"),
    [
        (
            "opentelemetry.proto",
            (),
            f"error: kgw.otel.endpoint needs a package: {install_command('otel')}\n",
        ),
        (
            "",
            ("--set", "kgw.otel.headers.file=absent"),
            "error: kgw.otel.headers.file: absent: No such file or directory\n",
        ),
    ],
)
def test_a_start_that_is_refused(
    tmp_path: Path, without: str, settings: tuple[str, ...], expected: str
) -> None:
    """What cannot export as it is told does not start, and leaves nothing behind."""
    endpoint = "kgw.otel.endpoint=http://127.0.0.1:1"
    arguments = ["--listen", "127.0.0.1:0", "--set", endpoint, *settings]
    serving = Serving(tmp_path / "data", *arguments, without=without)
    code, errors = serving.wait()
    assert (2, expected) == (code, errors)
