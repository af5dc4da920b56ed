"""`fairlead run` on the node of a Ray cluster that has an address of its own.

Several nodes on one machine are told apart by their addresses; left to itself, Ray takes the head. Run by `test_nodes`:

    python -m tests.acceptance.joining NODE_IP [OPTION OF run ...]
"""

from __future__ import annotations

import sys
from functools import partial

import fairlead.actors.runtime.ray_host  # noqa: F401 - before ray: it sets what Ray reads when it is imported

# isort: split
import ray

from fairlead.cli import main

if __name__ == "__main__":
    ray.init = partial(ray.init, _node_ip_address=sys.argv[1])
    main(["run", *sys.argv[2:]])
