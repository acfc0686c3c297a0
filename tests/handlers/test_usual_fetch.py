from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.handlers.usual_fetch import FIRST_VERSION, usual_frame
from kgw.partitions.fetch_sessions import FetchSession, SessionPartition
from kgw.partitions.reading import PartitionRead
from kgw.protocol.framing import response_frame
from kgw.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

FIRST_VERSION_BY_ID = 13
offsets = st.integers(-1, (1 << 63) - 1)
parts = st.tuples(
    st.integers(0, (1 << 31) - 1), offsets, offsets, st.lists(st.binary(max_size=300), max_size=4)
)


@given(
    version=st.integers(FIRST_VERSION, FetchResponse.valid_versions[1]),
    name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=249),
    topic_id=st.binary(min_size=16, max_size=16),
    correlation_id=st.integers(-(1 << 31), (1 << 31) - 1),
    session_id=st.integers(1, (1 << 31) - 1),
    is_committed=st.booleans(),
    asked=st.lists(parts, min_size=1, max_size=150),
)
def test_equals_what_the_codec_makes_of_it(
    version: int,
    name: str,
    topic_id: bytes,
    correlation_id: int,
    session_id: int,
    is_committed: bool,
    asked: list[tuple[int, int, int, list[bytes]]],
) -> None:
    """Byte by byte, in every version that it is used for."""
    topic = topic_id if version >= FIRST_VERSION_BY_ID else name
    session = FetchSession(session_id, uses_topic_ids=version >= FIRST_VERSION_BY_ID, now_s=0.0)
    told: list[tuple[SessionPartition, PartitionRead]] = []
    answer = FetchableTopicResponse(topic=name, topic_id=topic_id)
    for index, high_watermark, log_start_offset, buffers in asked:
        part = PartitionRead(None, 0, 0)
        part.high_watermark = high_watermark
        part.log_start_offset = log_start_offset
        part.buffers = list(buffers)
        told.append((SessionPartition(session, topic, index), part))
        answer.partitions.append(
            PartitionData(
                partition_index=index,
                high_watermark=high_watermark,
                last_stable_offset=high_watermark,
                log_start_offset=log_start_offset,
                aborted_transactions=[] if is_committed else None,
                records=b"".join(buffers),
            )
        )
    plain = response_frame(
        FetchResponse(session_id=session_id, responses=[answer]), version, correlation_id
    )
    frame = usual_frame(session_id, told, correlation_id, is_committed=is_committed)
    assert b"".join(plain) == b"".join(frame)
