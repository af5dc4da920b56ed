"""What Ray must find in the environment when it is imported; so this module is imported before it.

Whoever imports a user's module imports this first: such a module may import Ray itself. Where Ray has been imported
already it is too late, and harmful: the parts of Ray would disagree about what they found.
"""

import os
import sys
from pathlib import Path

TOKEN_FILE = Path.home() / ".ray" / "auth_token"

if "ray" not in sys.modules:
    # Ray folds equal lines of its actors' output into one; what handlers print is theirs to fold.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")

    # Ray colours the names of its actors into pipes and files, too.
    if not all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)):
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")

    # Joining a cluster by its address never turns authentication on by itself; a token that is there says it is wanted.
    if TOKEN_FILE.exists() or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
