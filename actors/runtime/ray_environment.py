"""Environment variables that Ray reads when it is imported. So this module is imported before Ray.

Code that imports a user's module imports this module first, because a user's module may import Ray. If Ray has been
imported already, nothing is set: the parts of Ray would disagree about the variables.
"""

import os
import sys
from pathlib import Path

TOKEN_FILE = Path.home() / ".ray" / "auth_token"

if "ray" not in sys.modules:
    # Ray merges equal lines of its actors' output into one. The output of handlers must stay complete.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")

    # Ray colours the names of its actors in pipes and files, too.
    if not all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)):
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")

    # Ray does not turn on authentication when it joins a cluster by its address. An existing token means that it is on.
    if TOKEN_FILE.exists() or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
