"""Questions and previews of the deletion of passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.cli.shared.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.security.sasl.scram import ScramMechanism


class Deletion(NamedTuple):
    """The passwords that a deletion removes."""

    user: str
    mechanisms: list[ScramMechanism]
    is_last: bool
    """Whether the user has no other password: the user's delegation tokens are deleted, too."""
    token_count: int | None = None
    """The number of the user's delegation tokens; None if it is not known."""

    @property
    def tokens(self) -> str:
        """The delegation tokens that are deleted, in words; empty if there are none."""
        if not self.is_last or self.token_count == 0:
            return ""
        if self.token_count is None:
            return f"the delegation tokens that {self.user} owns or has requested"
        noun = "delegation token" if self.token_count == 1 else "delegation tokens"
        return f"{self.token_count} {noun} that {self.user} owns or has requested"

    @property
    def question(self) -> str:
        """The passwords and tokens, in words."""
        names = " and ".join(one.sasl_name for one in self.mechanisms)
        what = f"the user {self.user}" if self.is_last else f"the password of {self.user}"
        return f"{what} for {names}" + (f", and {self.tokens}" if self.tokens else "")


def deletion_of(
    user: str, found: Iterable[ScramMechanism | None], wanted: ScramMechanism | None
) -> Deletion:
    """Return the deletion of one of the passwords that a user has, or of all.

    Raises CommandError if there is none.
    """
    mechanisms = [*found]
    known = [one for one in mechanisms if one is not None]
    chosen = [one for one in known if wanted is None or one is wanted]
    if not chosen:
        what = "no password" if wanted is None else f"no password for {wanted.sasl_name}"
        raise CommandError(f"the user {user} has {what}")
    return Deletion(user, chosen, len(chosen) == len(mechanisms))
