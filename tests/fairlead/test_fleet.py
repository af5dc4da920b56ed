"""A fleet that cannot run its handlers is not started."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fairlead import App, fleet
from fairlead.actors.runtime.thread_host import NeedsRay


class RemoteFunction:
    """Looks like a Ray remote function: by its class's module, and by `.remote`."""

    __module__ = "ray.remote_function"

    def remote(self, job: Any) -> None: ...


def test_a_ray_function_is_refused_by_threads_before_anything_is_opened() -> None:
    """Every item would fail, be retried for hours, and end up as a dead letter."""
    app = App("embedded:/dev/null/nowhere", random=Random(1))
    draw: Any = RemoteFunction()
    app.handler("mail")(print)
    app.handler("draw")(draw)
    with pytest.raises(NeedsRay) as caught:
        fleet.start(app, "shop:app", runtime="threads")
    assert caught.value.fields["kind"] == "draw"
