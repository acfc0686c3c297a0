from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.coordinator.machine import DecodedRow
from kgw.groups.requests import JoinRequest, MemberProtocol
from kgw.groups.rows import GroupRow, MemberRow, decode_row
from kgw.groups.states import GroupEvent, GroupState, next_state
from kgw.state.kinds import CLASSIC_GROUP

PROTOCOL_TYPE = "workers"
PROTOCOLS = st.lists(st.builds(MemberProtocol, st.text(), st.binary())).map(tuple)


@st.composite
def members(draw: st.DrawFn) -> MemberRow:
    """Return a member as it is loaded: of what it said, what matters later."""
    member_id, instance = draw(st.text()), draw(st.none() | st.text())
    times_ms = draw(st.tuples(st.integers(0, 1 << 31), st.integers(0, 1 << 31)))
    names = draw(st.tuples(st.text(), st.text()))
    said = JoinRequest(
        *(member_id, instance, *names, *times_ms, PROTOCOL_TYPE, draw(PROTOCOLS)), member_id
    )
    return MemberRow(member_id, instance, said, draw(st.binary()), draw(st.booleans()))


ROWS = st.builds(
    GroupRow,
    st.sampled_from([GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE]),
    st.integers(0, 1 << 31),
    st.just(PROTOCOL_TYPE),
    st.none() | st.text(),
    st.text(),
    st.lists(members(), max_size=4).map(tuple),
)


@given(row=ROWS, wall_ms=st.integers(0, 1 << 50))
def test_what_is_encoded_is_decoded(row: GroupRow, wall_ms: int) -> None:
    """Names, ids and bytes of any content survive, and since when nobody is in the group."""
    empty_since_ms = wall_ms if row.state is GroupState.EMPTY else -1
    decoded = decode_row(CLASSIC_GROUP, "group", row.encode(wall_ms))
    assert DecodedRow("group", row._replace(empty_since_ms=empty_since_ms)) == decoded


def test_a_row_is_stored_as_it_always_was() -> None:
    """Directories that older versions wrote are read, and the other way round."""
    said = JoinRequest(
        *("m", "one", "client", "/host", 10, 20, "consumer", (MemberProtocol("range", b"ab"),)), "m"
    )
    row = GroupRow(
        GroupState.STABLE, 3, "consumer", "range", "m", (MemberRow("m", "one", said, b"part"),)
    )
    stored = (
        b'{"state":"Stable","generation":3,"protocol_type":"consumer","protocol_name":"range",'
        b'"leader_id":"m","empty_since_ms":-1,"members":[{"member_id":"m",'
        b'"group_instance_id":"one","client_id":"client","client_host":"/host",'
        b'"session_timeout_ms":10,"rebalance_timeout_ms":20,"protocols":[["range","YWI="]],'
        b'"assignment":"cGFydA==","has_joined":true}]}'
    )
    assert stored == row.encode(1_700_000_000_000)
    assert DecodedRow("group", row) == decode_row(CLASSIC_GROUP, "group", stored)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"rubbish", b'{"state":"Dead"}', b"\xff"])
def test_other_bytes_are_a_value_error(value: bytes) -> None:
    """Whatever is not a row is told from one."""
    with pytest.raises(ValueError, match=r"\S"):
        decode_row(CLASSIC_GROUP, "group", value)


def test_what_is_not_in_the_table_cannot_happen() -> None:
    """A step that the diagram does not have is a bug of ours, and said to be one."""
    with pytest.raises(ValueError, match="Dead cannot see"):
        next_state(GroupState.DEAD, GroupEvent.ASSIGNED)
