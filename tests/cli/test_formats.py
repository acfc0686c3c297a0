from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.formats import (
    InputFormat,
    InputRecord,
    OutputFormat,
    format_duration,
    format_time,
    parse_header,
)
from kgw.offsets.reader import ReadRecord
from kgw.offsets.where import parse_time
from kgw.records.record import Record

CONTENT = st.none() | st.binary(max_size=30)
HEADER = st.tuples(
    st.binary(max_size=10).map(lambda key: key.decode("utf-8", "surrogateescape")), CONTENT
)


def read_json(document: object) -> InputRecord:
    """Return the record of a JSON line."""
    return InputFormat("json", None, None, ()).read_line(json.dumps(document).encode(), 1)


@given(CONTENT, CONTENT, st.lists(HEADER, max_size=3), st.integers(-1, 1 << 45))
def test_what_is_consumed_as_json_can_be_produced(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> None:
    """Any record survives being printed as JSON and read again, binary or not."""
    record = Record(7, timestamp_ms, key, value, tuple(headers))
    line = OutputFormat("json", "events").write(ReadRecord(3, record, has_log_append_time=False))
    found = InputFormat("json", None, None, ()).read_line(line.rstrip(b"\n"), 1)
    assert InputRecord(3, key, value, timestamp_ms, tuple(headers)) == found


@pytest.mark.parametrize("name", ["hex", "base64"])
@given(key=st.binary(max_size=20), value=st.binary(max_size=20))
def test_encoded_text_survives(name: str, key: bytes, value: bytes) -> None:
    """Keys and values printed as hex or base64 are read as what they were."""
    record = Record(0, 0, key, value)
    line = OutputFormat(name, "events", ":").write(ReadRecord(0, record, has_log_append_time=False))
    found = InputFormat(name, ":", None, ()).read_line(line.removesuffix(b"\n"), 1)
    assert (key, value) == (found.key, found.value)


def test_text_lines_are_values_and_keys() -> None:
    """Without a separator a line is the value; with one, the first occurrence splits it."""
    assert InputRecord(None, None, b"a:b", None, ()) == InputFormat(
        "text", None, None, ()
    ).read_line(b"a:b", 1)
    assert InputRecord(None, b"a", b"b:c", None, ()) == InputFormat(
        "text", ":", None, ()
    ).read_line(b"a:b:c", 1)


def test_a_word_can_stand_for_null() -> None:
    """A null value deletes a key; text has no other way to say it."""
    input_format = InputFormat("text", ":", "NULL", ())
    assert input_format.read_line(b"a:NULL", 1).value is None
    assert b"" == input_format.read_line(b"a:", 1).value


def test_json_values_are_text_or_compact_json() -> None:
    """A string is its text; anything else is its JSON, and null is null."""
    assert b"text" == read_json({"value": "text"}).value
    assert '{"a":[1,"é"]}'.encode() == read_json({"value": {"a": [1, "é"]}}).value
    assert b"0" == read_json({"value": 0}).value
    assert read_json({"value": None}).value is None
    assert read_json({}).value is None


def test_json_headers_may_be_an_object() -> None:
    """Headers can be written shortly, where no key comes twice."""
    assert (("a", b"1"), ("b", None)) == read_json({"headers": {"a": "1", "b": None}}).headers


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", "not JSON: expecting property name"),
        (b"\xff", "not JSON"),
        (b"[]", "a record is an object"),
        (b'{"valu": 1}', "unknown field 'valu'"),
        (b'{"value_base64": "%"}', "is not base64"),
        (b'{"value_base64": 1}', "value_base64 is not a string"),
        (b'{"value": "a", "value_base64": "YQ=="}', "exclude each other"),
        (b'{"partition": "1"}', "partition is not a whole number"),
        (b'{"timestamp_ms": true}', "timestamp_ms is not a whole number"),
        (b'{"timestamp_ms": 9223372036854775808}', "timestamp_ms 9223372036854775808 is out of"),
        (b'{"partition": -2147483649}', "partition -2147483649 is out of range"),
        (b'{"headers": [1]}', "headers are an object"),
        (b'{"headers": [{"value": "no key"}]}', "headers are an object"),
    ],
)
def test_bad_json_lines_name_the_line(line: bytes, expected: str) -> None:
    """The message says which line, and what is wrong with it."""
    with pytest.raises(CommandError) as caught:
        InputFormat("json", None, None, ()).read_line(line, 12)
    assert caught.value.message.startswith("line 12: ")
    assert expected.lower() in caught.value.message.lower()


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("hex", b"xx", "'xx' is not hexadecimal"),
        ("base64", b"?", "'?' is not base64"),
        ("text", b"no separator", "there is no ':' between key and value"),
    ],
)
def test_bad_text_lines_name_the_line(name: str, line: bytes, expected: str) -> None:
    """The same for the other formats."""
    separator = ":" if name == "text" else None
    with pytest.raises(CommandError, match=f"line 3: .*{expected[-12:]}"):
        InputFormat(name, separator, None, ()).read_line(line, 3)


@given(st.binary(max_size=60), st.sampled_from(["json", "hex", "base64", "text"]))
def test_any_line_is_a_record_or_a_command_error(line: bytes, name: str) -> None:
    """Nothing that is typed can end in a traceback."""
    try:
        record = InputFormat(name, None, None, ()).read_line(line, 1)
    except CommandError:
        return
    assert isinstance(record, InputRecord)


def test_times_are_read_and_printed() -> None:
    """Milliseconds, ISO 8601 with a zone, and times beyond any calendar."""
    assert 1000 == parse_time("@1000")
    assert 1_769_860_800_000 == parse_time("2026-01-31T12:00:00Z")
    assert "2026-01-31T12:00:00.007Z" == format_time(1_769_860_800_007)
    assert "-1" in format_time(-1) or "1969" in format_time(-1)
    assert str(1 << 62) == format_time(1 << 62)
    with pytest.raises(ValueError, match="further away"):
        parse_time("@9223372036854775808")


def test_headers_of_the_command_line() -> None:
    """A header without a value is null, and without a key is nothing."""
    assert ("a", b"b=c") == parse_header("a=b=c")
    assert ("a", None) == parse_header("a")
    with pytest.raises(ValueError, match="KEY=VALUE"):
        parse_header("=b")


def test_text_output_shows_what_is_asked_for() -> None:
    """Offset, time and headers stand before the record, separated by tabs."""
    record = Record(5, 0, b"k", None, (("h", b"1"), ("n", None)))
    output = OutputFormat(
        "text",
        "events",
        "=",
        "NULL",
        has_offsets=True,
        has_timestamps=True,
        has_headers=True,
    )
    line = output.write(ReadRecord(2, record, has_log_append_time=True))
    assert b"2:5\t1970-01-01T00:00:00.000Z\th=1,n=NULL\tk=NULL\n" == line
    assert b"" == OutputFormat("raw", "events").write(ReadRecord(2, record, True))


def test_durations() -> None:
    """As long as people need to see it."""
    expected = ["?", "0 s", "1.5 s", "1 min", "59 min", "1 h", "47 h", "2 d"]
    given = [None, 0, 1_500, 60_000, 3_599_999, 3_600_000, 47 * 3_600_000, 48 * 3_600_000]
    assert expected == [format_duration(one) for one in given]
