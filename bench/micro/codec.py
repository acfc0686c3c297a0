"""Times the codec: a Produce request decoded, its response built and encoded, and the imports.

Prints JSON. Times of the codec are medians of repeated runs, in microseconds of processor time for
one message, so that neighbours on the machine count less; imports are medians over fresh processes,
in milliseconds of processor and of wall time, with the bytecode already written.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.decoding import compile_decoder
from kgw.protocol.encoding import compile_encoder
from kgw.protocol.framing import decode_request_header, encode_request_header, response_frame
from kgw.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 31
MESSAGES_A_RUN = 5_000
PROCESSES = 10

_IMPORT_EVERYTHING = """
import time
wall, processor = time.perf_counter(), time.process_time()
import kgw.protocol.blobs, kgw.protocol.framing
from kgw.protocol.api_keys import MESSAGE_KEYS, request_class
for api_key in MESSAGE_KEYS:
    request_class(api_key)
print(time.perf_counter() - wall, time.process_time() - processor)
"""
_IMPORT_TO_SERVE = """
import time
wall, processor = time.perf_counter(), time.process_time()
import kgw.protocol.framing
print(time.perf_counter() - wall, time.process_time() - processor)
"""


def median_us(call: Callable[[], object]) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for _ in range(RUNS):
        started = time.thread_time()
        for _ in range(MESSAGES_A_RUN):
            call()
        times.append((time.thread_time() - started) / MESSAGES_A_RUN * 1e6)
    return round(statistics.median(times), 2)


def median_import_ms(program: str) -> dict[str, float]:
    """Return the median times that a program of imports reports, in milliseconds."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", program]
        times = []
        for _ in range(PROCESSES + 1):
            result = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            times.append([float(seconds) * 1e3 for seconds in result.stdout.split()])
    # The first process wrote the bytecode.
    wall, processor = (
        round(statistics.median(column), 1) for column in zip(*times[1:], strict=True)
    )
    return {"wall": wall, "processor": processor}


def produce_request() -> memoryview:
    """Return a Produce version 9 request of one partition with a kilobyte of records."""
    partition = PartitionProduceData(index=3, records=bytes(1024))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="orders", partition_data=[partition])],
    )
    return memoryview(codec(ProduceRequest, 9).encode(request))


def produce_response() -> ProduceResponse:
    """Build the response to it, as a handler does."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="orders",
                partition_responses=[
                    PartitionProduceResponse(
                        index=3,
                        error_code=0,
                        base_offset=123_456_789,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                    )
                ],
            )
        ]
    )


def fetch_response(partitions: int) -> FetchResponse:
    """Build a Fetch response of many partitions without records."""
    items = [
        PartitionData(partition_index=index, high_watermark=1_000_000, records=b"")
        for index in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=items)])


def compile_ms(compile_one: Callable[[], object]) -> float:
    """Return the median time of writing and compiling one codec, in milliseconds."""
    times = []
    for _ in range(RUNS):
        started = time.thread_time()
        compile_one()
        times.append((time.thread_time() - started) * 1e3)
    return round(statistics.median(times), 2)


def main() -> None:
    """Measure everything and print it."""
    request = produce_request()
    decode = codec(ProduceRequest, 9).decode
    encode_parts = codec(ProduceResponse, 9).encode_parts
    header = memoryview(encode_request_header(ApiKey.PRODUCE, 9, 1, "client"))
    large = fetch_response(1000)
    encode_fetch = codec(FetchResponse, 12).encode_parts
    results = {
        "produce_v9_decode_us": median_us(lambda: decode(request)),
        "produce_v9_build_and_encode_response_us": median_us(
            lambda: encode_parts(produce_response())
        ),
        "produce_v9_build_and_frame_response_us": median_us(
            lambda: response_frame(produce_response(), 9, 1)
        ),
        "request_header_v2_decode_us": median_us(lambda: decode_request_header(header)),
        "fetch_v12_encode_1000_partitions_us": round(
            min(_seconds(lambda: encode_fetch(large)) for _ in range(RUNS)) * 1e6
        ),
        "compile_fetch_v18_request_decoder_ms": compile_ms(
            lambda: compile_decoder(FetchRequest, 18, flexible=True)
        ),
        "compile_fetch_v18_response_encoder_ms": compile_ms(
            lambda: compile_encoder(FetchResponse, 18, flexible=True)
        ),
        "import_every_message_ms": median_import_ms(_IMPORT_EVERYTHING),
        "import_framing_only_ms": median_import_ms(_IMPORT_TO_SERVE),
    }
    print(json.dumps(results, indent=2))


def _seconds(call: Callable[[], object]) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


if __name__ == "__main__":
    main()
