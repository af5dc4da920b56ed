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


def test_only_the_first_consumer_gets_the_lease() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=1)
    assert not asking.ask("b", at_us=LEASE_US - 1)


def test_each_shard_has_an_order_of_its_own() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0, shard="s0")
    assert asking.ask("b", at_us=0, shard="s1")


def test_the_lease_expires() -> None:
    """As when the scanner died: there is no release."""
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert asking.ask("b", at_us=LEASE_US)
    assert not asking.ask("a", at_us=LEASE_US)


def test_the_lease_is_renewed_only_if_pointers_were_handed_over() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert asking.ask("a", at_us=LEASE_US // 2, handed_over=True)
    assert not asking.ask("b", at_us=LEASE_US)
    assert asking.ask("b", at_us=LEASE_US // 2 + LEASE_US)


def test_a_refused_renewal_does_not_extend_the_lease() -> None:
    """A scanner that hangs, or whose workers are full, must not stand in the way of others for ever."""
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("a", at_us=LEASE_US - 1), "a yes would mean: for a whole lease from now"
    assert asking.ask("b", at_us=LEASE_US)


def test_an_idle_holder_may_have_the_lease_again_after_its_expiry() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert asking.ask("a", at_us=LEASE_US)


def test_after_an_idle_holder_a_waiting_consumer_is_next() -> None:
    """Before, it had it for ever: it asks three times per lease, the third time at the instant when that runs out."""
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=LEASE_US // 2)
    assert not asking.ask("a", at_us=LEASE_US)
    assert asking.ask("b", at_us=LEASE_US + 1)


def test_an_idle_holder_does_not_wait_for_a_dead_consumer() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=LEASE_US // 2)
    assert asking.ask("a", at_us=LEASE_US // 2 + LEASE_US)


def test_a_consumer_that_waited_and_has_the_lease_is_renewed() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=LEASE_US // 2)
    assert asking.ask("b", at_us=LEASE_US)
    assert asking.ask("b", at_us=2 * LEASE_US)


def test_a_full_consumer_releases_the_lease_and_the_next_gets_it_at_once() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("a", at_us=1, wanted=False)
    assert asking.ask("b", at_us=2)


def test_a_consumer_cannot_release_the_lease_of_another() -> None:
    asking = Asking()
    assert asking.ask("a", at_us=0)
    assert not asking.ask("b", at_us=1, wanted=False)
    assert not asking.ask("b", at_us=2)


def test_after_a_restart_of_the_coordinator_two_consumers_may_scan_in_order_for_a_while() -> None:
    before, after = Asking(), Asking()
    assert before.ask("a", at_us=0)
    assert after.ask("b", at_us=1)
    assert not after.ask("a", at_us=LEASE_US // 3, handed_over=True)
