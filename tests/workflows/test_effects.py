"""Effects: called at least once with one key, or at most once; their answers are recorded."""

from __future__ import annotations

import pytest

from fairlead.actors.handlers import PermanentError
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.errors import EffectUnknown
from tests.workflows.application import HOME, add, count, enqueue, run, two_shards


def test_an_effect_is_called_once_if_its_answer_is_recorded() -> None:
    app, calls = two_shards(), []

    def pay(key: str, price: int) -> str:
        calls.append((key, price))
        return f"paid {price}"

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        answer = wf.effect(pay, 7)
        wf.step(add, "after")
        return answer

    item = enqueue(app, "w")
    run(app)
    assert item.result(0) == "paid 7"
    ((key, _),) = calls
    assert len(key) == 32


def test_an_effect_whose_answer_is_lost_is_called_again_with_the_same_key() -> None:
    app, keys = two_shards(), []

    def pay(key: str) -> None:
        keys.append(key)
        if len(keys) < 3:
            raise ConnectionError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.effect(pay)
        wf.effect(pay)

    enqueue(app, "w")
    run(app, within=60)
    assert keys[0] == keys[1] == keys[2] != keys[3]


class _Killed(BaseException):
    """Stands for the death of the worker."""


def test_an_effect_that_is_called_once_is_not_called_again_after_its_worker_died() -> None:
    app, calls = two_shards(), []

    def pay(key: str) -> None:
        calls.append(key)
        raise _Killed

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        try:
            wf.effect(pay, once=True)
        except EffectUnknown as error:
            return f"{error.step} {error.key}"
        return "?"

    item = enqueue(app, "w")
    with pytest.raises(_Killed):
        run(app)
    run(app, within=3600)
    assert item.result(0) == f"pay {calls[0]}"
    assert len(calls) == 1


def test_an_effect_that_is_called_once_and_refuses_is_not_called_again() -> None:
    app, calls = two_shards(), []

    def pay(key: str) -> None:
        calls.append(key)
        raise ConnectionError("refused")

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        try:
            wf.effect(pay, once=True)
        except PermanentError as error:
            return str(error)
        return "?"

    item = enqueue(app, "w")
    run(app, within=60)
    assert item.result(0) == "step 'pay' failed: ConnectionError: refused"
    assert len(calls) == 1


def test_a_read_is_recorded_before_an_effect_that_depends_on_it() -> None:
    """Otherwise one key could come with two arguments."""
    app, calls = two_shards(), []

    def pay(key: str, price: int) -> None:
        calls.append((key, price))
        if len(calls) == 1:
            raise ConnectionError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        price = wf.read(lambda tr: count_in(tr, "price"), name="price")
        wf.effect(pay, price)

    enqueue(app, "w")
    run(app)
    app.tenant(HOME).transact(lambda tr: add(tr, "price"))
    run(app, within=60)
    assert len(set(calls)) == 1
    assert count(app, HOME, "price") == 1


def count_in(tr: object, name: str) -> int:
    value = tr.get((name,))  # type: ignore[attr-defined]
    return int.from_bytes(value or b"", "little", signed=True)
