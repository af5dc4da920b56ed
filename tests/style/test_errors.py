"""An error is caught by name, where someone can act on it."""

import ast
from collections.abc import Iterator

import pytest

from tests.style.sources import Offence, Source, assert_none, functions, place, product_sources, source

# `path:function` that may catch everything, and why. Such a line also carries `noqa: BLE001`, for its reader.
ALLOWED: dict[str, str] = {
    "actors/execution/submitted_handlers.py:SubmittedHandlers._register": "unpickling runs a stranger's program",
    "actors/runtime/ray_host/actors.py:_exit_if_it_fails.begin_or_exit": "only an actor that exits starts again",
    "actors/execution/runner.py:_run_tries": "whatever a handler raises, it gets its in-line retries",
    "actors/execution/runner.py:run_handler": "whatever a handler raises, the hooks are called, and it goes on",
    "actors/execution/runner.py:_call_hooks": "a hook may raise anything, and its item is settled all the same",
    "actors/runtime/ray_host/calls.py:called_with.decorate.receive": "as ThreadRemote._run",
    "actors/runtime/thread_host.py:ThreadRemote._run": "whatever an actor's method raises is its caller's to see",
    "actors/runtime/supervisor.py:Supervisor.supervised.run": "the supervisor is where every error of a loop ends",
    "actors/execution/event_loop.py:EventLoop._run_until_it_ends": "a user's callback may raise anything",
    "actors/execution/event_loop.py:EventLoop._start": "whatever a handler raises is its item's failure",
    "actors/execution/failed_attempt.py:render_error": "an error's class renders it, and may fail",
    "actors/execution/failed_attempt.py:cause_of": "an error's class is tested, and may fail",
    "actors/worker.py:Worker._process": "a slot survives whatever a handler raises; the item is settled by it",
    "workflows/driver.py:guarded": "an error of a store ends the attempt, and is the item's failure",
    "workflows/effects.py:do_effect": "whatever an effect raises is its step's failure",
    "workflows/step_commits.py:packed_result": "whatever the body of a step raises is its step's failure",
    "workflows/requests.py:run_inline": "the generator that asked gets it",
    "workflows/asynchronous.py:AsyncDriver.run": "as run_inline",
    "workflows/workflow_kind.py:_FunctionRun._replay": "whatever a workflow raises decides what becomes of its item",
    "workflows/workflow_kind.py:_FunctionRun._replay_async": "as _replay",
    "zones/spanning/coordinator.py:SpanningTransaction.run": "whatever a body raises counts if its reads are valid",
    "zones/spanning/coordinator.py:_giving_up": "whatever ends an attempt, its locks are released; it is raised again",
    "zones/engines/embedded/group_commit.py:GroupCommit.await_answer": "others need this thread; it is raised again",
    "zones/engines/embedded/group_commit.py:GroupCommit.lead_if_free": "as await_answer",
    "zones/engines/embedded/group_commit.py:GroupCommit._finish_duty": "as await_answer",
    "zones/engines/embedded/group_commit.py:GroupCommit.pause": "as await_answer",
    "simulation/actor.py:Actor._serve": "as ThreadRemote._run",
    "simulation/application.py:blame": "whatever a user's request or check raises is what it has to say",
    "simulation/handler_runners.py:InstrumentedHandlers._observed": "only its name is noted; it goes on to the worker",
    "simulation/world.py:Task._run": "an error in a task ends the run, and is raised where the world was started",
    "fairlead/demo/demo_run.py:Storing._run": "whatever ends this thread ends the demo, which raises it",
    "fairlead/loading.py:load_attribute": "whatever a user's module raises as it is imported, its author is shown",
    "fairlead/store_threads.py:_answer": "whatever a call raises is raised where a coroutine awaits it",
    "fairlead/store_threads.py:_has_ended": "whatever a look at a watch raises is its coroutine's to see",
    "fairlead/telemetry/otel_sdk.py:MetricsLoop._run": "every error of the loop ends here, and fails its owner",
    "fairlead/testing.py:_error_of": "a handler may raise anything, and a drain settles its item first",
}


def broad_excepts(source: Source) -> Iterator[Offence]:
    """Yield each handler of everything (`except:`, `Exception`, `BaseException`) that is not in `ALLOWED`."""
    spans = [(function, name) for function, name in functions(source.tree)]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node):
            around = [name for f, name in spans if f.lineno <= node.lineno <= (f.end_lineno or f.lineno)]
            where = f"{source.path}:{around[-1] if around else '<module>'}"
            if where not in ALLOWED:
                yield Offence(
                    place(source, node),
                    "this catches every error, bugs included",
                    f"catch by name what you can act on, or give {where} a reason in tests/style/test_errors.py",
                )


def test_no_error_is_caught_but_by_name() -> None:
    assert_none(broad_excepts, product_sources())


def test_every_place_that_may_catch_everything_still_exists() -> None:
    places = {f"{each.path}:{name}" for each in product_sources() for _, name in functions(each.tree)}
    assert set(ALLOWED) <= places


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException", " (OSError, Exception)", " Exception as error"])
def test_a_planted_broad_except_is_found(caught: str) -> None:
    text = f"def f():\n    try:\n        pass\n    except{caught}:\n        pass"
    assert [o.place for o in broad_excepts(source("zones/planted.py", text))] == ["zones/planted.py:4"]


def test_an_error_caught_by_name_is_allowed() -> None:
    text = "try:\n    pass\nexcept (OSError, ValueError):\n    pass"
    assert list(broad_excepts(source("zones/planted.py", text))) == []


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(each, ast.Name) and each.id in {"Exception", "BaseException"} for each in caught)
