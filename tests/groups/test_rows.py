from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.groups.machine import DecodedRow
from kgw.groups.requests import MemberProtocol
from kgw.groups.rows import GroupRow, MemberRow, decode_row
from kgw.groups.states import TRANSITIONS, GroupEvent, GroupState, next_state
from kgw.state.kinds import CLASSIC_GROUP

MEMBERS = st.builds(
    MemberRow,
    st.text(),
    st.none() | st.text(),
    st.text(),
    st.text(),
    st.integers(0, 1 << 31),
    st.integers(0, 1 << 31),
    st.lists(st.builds(MemberProtocol, st.text(), st.binary())).map(tuple),
    st.binary(),
    st.booleans(),
)
ROWS = st.builds(
    GroupRow,
    st.sampled_from([GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE]),
    st.integers(0, 1 << 31),
    st.text(),
    st.none() | st.text(),
    st.text(),
    st.lists(MEMBERS, max_size=4).map(tuple),
)


@given(row=ROWS, wall_ms=st.integers(0, 1 << 50))
def test_what_is_encoded_is_decoded(row: GroupRow, wall_ms: int) -> None:
    """Names, ids and bytes of any content survive, and since when nobody is in the group."""
    empty_since_ms = wall_ms if row.state is GroupState.EMPTY else -1
    decoded = decode_row(CLASSIC_GROUP, "group", row.encode(wall_ms))
    assert DecodedRow("group", row, empty_since_ms) == decoded


@given(row=ROWS, wall_ms=st.integers(0, 1 << 50))
def test_a_row_is_the_text_that_the_json_module_writes(row: GroupRow, wall_ms: int) -> None:
    """Rows are formatted by hand, and are the JSON that they always were."""
    fields = {
        **row._asdict(),
        "state": row.state.value,
        "empty_since_ms": wall_ms if row.state is GroupState.EMPTY else -1,
        "members": [
            {
                **member._asdict(),
                "protocols": [
                    [one.name, b64encode(one.metadata).decode()] for one in member.protocols
                ],
                "assignment": b64encode(member.assignment).decode(),
            }
            for member in row.members
        ],
    }
    fields["members"] = fields.pop("members")
    written = json.dumps(fields, separators=(",", ":")).encode()
    assert written == row.encode(wall_ms)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"rubbish", b'{"state":"Dead"}', b"\xff"])
def test_other_bytes_are_a_value_error(value: bytes) -> None:
    """Whatever is not a row is told from one."""
    with pytest.raises(ValueError, match=r"\S"):
        decode_row(CLASSIC_GROUP, "group", value)


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_what_is_not_in_the_table_cannot_happen(state: GroupState, event: GroupEvent) -> None:
    """Every state meets every event: it leads where the table says, or raises."""
    target = TRANSITIONS[state].get(event)
    if target is None:
        with pytest.raises(ValueError, match=state.value):
            next_state(state, event)
    else:
        assert target is next_state(state, event)
