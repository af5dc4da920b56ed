"""Who may scan a shard in order, and for how long (QuiCK section 6, "Concurrency between consumers")."""

from fairlead.actors.coordinator import Coordinator

LEASE_US = 3_000_000


class Asking:
    """Consumers that ask one coordinator for one shard, at times after the start."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()

    def ask(
        self, consumer: str, *, at_us: int, handed_over: bool = False, wanted: bool = True, shard: str = "s0"
    ) -> bool:
        return self.coordinator.request(
            shard, consumer, handed_over=handed_over, wanted=wanted, lease_us=LEASE_US, now_us=at_us
        )


def test_who_asks_first_has_it_and_nobody_else() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=1)
    assert not asking.ask("b", at_us=LEASE_US - 1)


def test_each_shard_has_an_order_of_its_own() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0, shard="s0")
    assert asking.ask("b", at_us=0, shard="s1")


def test_it_runs_out_by_itself() -> None:
    """As when the scanner died: there is no release."""
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert asking.ask("b", at_us=LEASE_US)
    assert not asking.ask("a", at_us=LEASE_US)


def test_it_is_renewed_only_by_one_that_handed_over_pointers() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert asking.ask("a", at_us=LEASE_US // 2, handed_over=True)
    assert not asking.ask("b", at_us=LEASE_US)
    assert asking.ask("b", at_us=LEASE_US // 2 + LEASE_US)


def test_one_that_handed_over_nothing_is_not_told_that_it_has_longer_than_it_has() -> None:
    """A scanner that hangs, or whose workers are full, must not stand in the way of others for ever."""
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("a", at_us=LEASE_US - 1), "a yes would mean: for a whole lease from now"
    assert asking.ask("b", at_us=LEASE_US)


def test_one_that_handed_over_nothing_may_have_it_again_once_it_ran_out() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert asking.ask("a", at_us=LEASE_US)


def test_one_that_handed_over_nothing_lets_another_that_waits_go_first_when_it_ran_out() -> None:
    """Before, it had it for ever: it asks three times per lease, the third time at the instant when that runs out."""
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=LEASE_US // 2)
    assert not asking.ask("a", at_us=LEASE_US)
    assert asking.ask("b", at_us=LEASE_US + 1)


def test_one_that_handed_over_nothing_waits_for_no_other_that_has_died() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=LEASE_US // 2)
    assert asking.ask("a", at_us=LEASE_US // 2 + LEASE_US)


def test_who_had_to_wait_and_has_it_now_waits_for_nobody() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=LEASE_US // 2)
    assert asking.ask("b", at_us=LEASE_US)
    assert asking.ask("b", at_us=2 * LEASE_US)


def test_a_full_consumer_gives_it_up_and_the_next_has_it_at_once() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("a", at_us=1, wanted=False)
    assert asking.ask("b", at_us=2)


def test_nobody_can_give_up_what_another_has() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=1, wanted=False)
    assert not asking.ask("b", at_us=2)


def test_a_coordinator_that_was_restarted_knows_nothing_and_two_may_go_in_order_for_a_while() -> None:
    before, after = Asking(), Asking()
    assert before.ask("a", at_us=0)
    assert after.ask("b", at_us=1)
    assert not after.ask("a", at_us=LEASE_US // 3, handed_over=True)
