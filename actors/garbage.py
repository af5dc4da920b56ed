"""How often a process that is a fleet's own looks for cycles among its objects."""

import gc

COLLECT_AFTER = 20_000  # Objects made and not freed: some megabytes.


def collect_rarely() -> None:
    """Look for cycles rarely from now on, and not among what there is already.

    What was imported stays for good, and a batch makes thousands of objects that go with it: looking through both for
    cycles after every 700 would take a tenth of the process's time. A user's own process is the user's to set.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
