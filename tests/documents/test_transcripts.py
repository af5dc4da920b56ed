"""The output that a page prints is found in the output of a command, whatever varies in it."""

from tests.documents.transcripts import begins_alike, contains_alike, ends_alike


def test_what_is_shown_so_far_is_looked_through_for_what_the_page_prints() -> None:
    assert begins_alike("one\ntwo\n", "one\ntwo\nthree\n") is not None
    assert begins_alike("one\ntwo\n", "one\n") is None
    assert begins_alike("", "") is not None


def test_a_line_that_goes_on_is_not_the_line_that_the_page_prints() -> None:
    assert begins_alike("mail sent\n", "mail sent twice\n") is None


def test_lines_of_two_threads_may_run_together() -> None:
    assert begins_alike("running\nmail sent\nmail sent\n", "running\nmail sentmail sent\n\n") is not None


def test_the_end_of_a_line_may_come_with_what_is_shown_next() -> None:
    assert begins_alike("mail sent\nmail sent\n", "mail sentmail sent\n") is not None
    assert ends_alike("draining: ...\n", "\ndraining: no new work starts\n")
    assert not ends_alike("draining: ...\n", "draining: no new work starts\nlost 1\n")


def test_a_line_that_ran_together_with_that_of_another_thread_has_been_printed() -> None:
    assert contains_alike("(pid=...) mail sent", "starting\n(pid=7) mail sentrunning\n\n")
    assert not contains_alike("(pid=...) mail sent", "starting\nrunning\n")
