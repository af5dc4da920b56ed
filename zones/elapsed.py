"""How long something has lasted, by a clock that may be set back or ahead meanwhile: counted from look to look."""

LOOK_US_MAX = 1_000_000  # A look that seems to come later than this counts as this: the clock was set ahead.


class Elapsed:
    """What has passed since `now_us`, as far as somebody looked. One thread at a time may look."""

    __slots__ = ("_looked_us", "_passed_us")

    def __init__(self, now_us: int) -> None:
        self._looked_us = now_us
        self._passed_us = 0

    def by(self, now_us: int) -> int:
        """Look now, and return how many microseconds have passed. Nothing passes while the clock is set back.

        A step of the clock costs what has passed since the look before it, or adds up to `LOOK_US_MAX`: never the step.
        """
        since_us = now_us - self._looked_us
        if since_us > 0:
            self._passed_us += since_us if since_us < LOOK_US_MAX else LOOK_US_MAX
        self._looked_us = now_us
        return self._passed_us
