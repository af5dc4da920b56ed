"""The machine's clock: the only place in the product that reads the time or sleeps."""

import time


class SystemClock:
    """Wall-clock time. It may step back; everything that takes a clock is correct if it does."""

    def now_us(self) -> int:
        """Return the microseconds since the epoch."""
        return time.time_ns() // 1000

    def sleep_us(self, duration_us: int) -> None:
        """Return after about `duration_us` microseconds; at once if it is not above 0."""
        time.sleep(max(0, duration_us) / 1_000_000)
