"""Whether a scanner is full: whether it waits for room most of the time. Plain bookkeeping, without a clock."""


class Saturation:
    """The waits of one scanner. Times in microseconds by its clock, which may step."""

    def __init__(self, now_us: int) -> None:
        self._asked_us = now_us
        self._waited_us = 0  # since then, but for the wait that lasts
        self._waits_since_us: int | None = None

    def wait(self, now_us: int) -> None:
        """Note that it begins to wait for room."""
        self._waits_since_us = now_us

    def end_wait(self, now_us: int) -> None:
        """Note that it waits no more."""
        self._count(now_us)
        self._waits_since_us = None

    def since_last(self, now_us: int) -> bool:
        """Say whether it has waited for most of the time since this was asked last."""
        self._count(now_us)
        full = self._waited_us > (now_us - self._asked_us) // 2 > 0
        self._waited_us, self._asked_us = 0, now_us
        return full

    def _count(self, now_us: int) -> None:
        if self._waits_since_us is not None:
            self._waited_us += max(0, now_us - self._waits_since_us)
            self._waits_since_us = now_us
