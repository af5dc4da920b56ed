"""Log lines that name their job: every record has its ids as fields, and a fleet's own format shows them.

Outside of a handler a line ends with its message; in one it goes on: `[item_id=6f... kind=receipt attempt=1 ...]`.

Errors quote payloads, which strangers have written. So control characters are spelled out, and further lines of a
record are indented: nothing in it draws on a terminal, or looks like another record.
"""

import logging
import sys

from fairlead.actors.runtime.safe_text import escaped
from fairlead.actors.telemetry.run import add_jobs_to_log_records

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(job_ids)s"
INDENT = "    "


class TextFormatter(logging.Formatter):
    """Formats a record, its traceback included: control characters spelled out, further lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return escaped(super().format(record), keep="\n\t").replace("\n", f"\n{INDENT}")


def log_to_stderr(level: str) -> None:
    """Log to standard error, from `level` on, unless the application has set up logging itself."""
    add_jobs_to_log_records()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
