from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.groups.requests import MemberProtocol
from kgw.groups.rows import GroupRow, MemberRow
from kgw.groups.states import TRANSITIONS, GroupEvent, GroupState, next_state

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


@given(row=ROWS, empty_since_ms=st.integers(-1, 1 << 50))
def test_what_is_encoded_is_decoded(row: GroupRow, empty_since_ms: int) -> None:
    """Names, ids and bytes of any content survive."""
    assert (row, empty_since_ms) == GroupRow.decode(row.encode(empty_since_ms))


@given(row=ROWS, empty_since_ms=st.integers(-1, 1 << 50))
def test_a_row_is_the_text_that_the_json_module_writes(row: GroupRow, empty_since_ms: int) -> None:
    """Rows are formatted by hand, and are the JSON that they always were."""
    fields = {
        **row._asdict(),
        "state": row.state.value,
        "empty_since_ms": empty_since_ms,
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
    assert written == row.encode(empty_since_ms)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"rubbish", b'{"state":"Dead"}', b"\xff"])
def test_other_bytes_are_a_value_error(value: bytes) -> None:
    """Whatever is not a row is told from one."""
    with pytest.raises(ValueError, match=r"\S"):
        GroupRow.decode(value)


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
