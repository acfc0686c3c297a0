"""A log's small state on disk, twice: `log-state.json` and its copy.

The records do not show the log start after records were deleted, or epochs without a record. A
flipped bit or a truncated file must not bring deleted records back. So the state is in two files,
and a broken file is replaced from the other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import replace_all_durably, replace_durably

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.layout import LogState

NAMES = (layout.LOG_STATE_NAME, layout.LOG_STATE_COPY_NAME)


class FoundLogState(NamedTuple):
    """The state that the two files of a log contain."""

    state: LogState | None
    """None if neither file can be read."""
    problems: tuple[tuple[str, str], ...] = ()
    """Path and problem of each broken file."""
    stale_name: str | None = None
    """Name of the broken or older file, which must be replaced from the other one."""


def read_log_state(fs: FileSystem, path: str) -> FoundLogState:
    """Return the state of the log in the directory `path`. Raises OSError."""
    states: list[LogState | None] = []
    problems: list[tuple[str, str]] = []
    for name in NAMES:
        try:
            states.append(layout.decode_log_state(fs.read_bytes(f"{path}/{name}")))
        except FileNotFoundError:
            states.append(None)
            # A log has no copy before its state changes for the first time.
            if name == layout.LOG_STATE_NAME:
                problems.append((f"{path}/{name}", "is missing"))
        except layout.SmallFileError as error:
            states.append(None)
            problems.append((f"{path}/{name}", str(error)))
    state, copy = states
    if state is not None:
        # After a crash between the two renames, the files differ. `log-state.json` is
        # authoritative.
        is_stale = copy != state and (copy is not None or bool(problems))
        return FoundLogState(
            state, tuple(problems), layout.LOG_STATE_COPY_NAME if is_stale else None
        )
    return FoundLogState(copy, tuple(problems), None if copy is None else layout.LOG_STATE_NAME)


def mend_log_state(
    fs: FileSystem, path: str, found: FoundLogState, report: Callable[[str], None]
) -> None:
    """Report the problems, and replace a broken or stale file from the other one."""
    remedy = "rebuilt" if found.state is None else "made anew from the other"
    for problem_path, problem in found.problems:
        report(f"{problem_path}: {problem}; {remedy}")
    if found.state is None or found.stale_name is None:
        return
    name = f"{path}/{found.stale_name}"
    try:
        replace_durably(fs, name, layout.encode_log_state(found.state))
    except (OSError, SyncFailedError) as error:
        report(f"{name}: {error}")


def write_log_state(
    fs: FileSystem, path: str, state: LogState, others: Mapping[str, bytes]
) -> None:
    """Durably replace both files, and the files in `others`.

    Raises OSError if the disk has no space for it, SyncFailedError if the disk fails.
    """
    content = layout.encode_log_state(state)
    contents = {**dict.fromkeys(NAMES, content), **others}
    replace_all_durably(fs, {f"{path}/{name}": data for name, data in contents.items()})
