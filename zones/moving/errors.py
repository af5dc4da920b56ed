"""Errors of moves that a user can meet."""

from fairlead.zones.errors import QueueError


class MoveRefused(QueueError):
    """The move cannot begin; nothing was changed.

    Do: what `reason` says.
    """

    message = "the tenant cannot be moved"


class MoveUnderWay(QueueError):
    """The tenant moves already, or has not fully arrived from its last move; nothing was changed.

    Do: wait for the move (`fairlead moves`), or cancel it: `fairlead move APP/USER --cancel`.
    """

    message = "the tenant moves already"


class MoveFailed(QueueError):
    """The move ended without moving the tenant, which lives where it lived before and has lost nothing.

    Do: see `reason`. A move that could not catch up succeeds when the tenant's users write less.
    """

    message = "the tenant was not moved"


class MoveHeldUp(QueueError):
    """A shard that the move needs cannot be used now, or a newer version carries it out. It goes on by itself later.

    Do: see to what `reason` names. Or cancel the move, `fairlead move APP/USER --cancel`: it ends as soon as
    the destination answers.
    """

    message = "the move is held up"


class MoverReplaced(Exception):
    """Another mover has taken over, or the move has ended: this one stops, and changes nothing more."""


class Unmovable(Exception):
    """The move cannot succeed: it is taken back, and its record says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
