"""Commands that write files: errors of the system, and Ctrl-C."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def writing_to(directory: Path, *, interrupted: str = "") -> Iterator[None]:
    """Turn system errors of a block of code into a CommandError that names a directory.

    After Ctrl-C, the sentence `interrupted` is printed; it says which files stay, and how to
    continue.
    """
    try:
        yield
    except OSError as error:
        raise CommandError(f"cannot write to {directory}: {error}") from None
    except KeyboardInterrupt:
        if interrupted:
            note(f"Interrupted. {interrupted}")
        raise
