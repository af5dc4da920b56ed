"""An oracle that the standard campaign seldom gives an occasion: in a chosen plan it finds the bug it is there for."""

from actors.scanner import Scanner
from simulation.oracles.calls import NobodyAsksAgainAndAgain
from tests.simulation.mutations.mutation import mutation

SEEDS = range(25)


def test_a_scanner_that_asks_a_dead_manager_again_at_once_is_found() -> None:
    bug = mutation(
        "a manager that has just died is asked again at once",
        (Scanner._died_lately, "return 0 <= ", "return False and 0 <= "),
        found_by=[NobodyAsksAgainAndAgain.promise],
    )
    assert bug.first_catch(SEEDS, faults=("kills", "node kills"), call_us=100)
