"""Log lines that name their job: every record has its ids as fields, and a fleet's own format shows them.

Outside of a handler a line ends with its message; in one it goes on: `[item_id=6f... kind=receipt attempt=1 ...]`.
"""

import logging
import sys

from actors.telemetry.run import name_jobs_in_logs

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(job_ids)s"


def log_to_stderr(level: str) -> None:
    """Log to standard error, from `level` on, unless the application has set up logging itself."""
    name_jobs_in_logs()
    logging.basicConfig(level=level.upper(), format=FORMAT, stream=sys.stderr)
