"""Names in order of urgency."""

from fairlead.policy.kit.agenda import Agenda


def agenda_of(*offers):
    agenda = Agenda()
    for name, number in offers:
        agenda.offer(name, number)
    return agenda


def taken(agenda):
    return list(iter(agenda.take, None))


def test_the_least_number_comes_first_and_ties_go_by_name():
    assert taken(agenda_of(("b", 2), ("c", 1), ("a", 2))) == ["c", "a", "b"]


def test_an_offer_moves_a_name_forward_but_never_back():
    assert taken(agenda_of(("a", 5), ("b", 3), ("a", 1), ("b", 9))) == ["a", "b"]


def test_a_name_that_was_taken_can_be_listed_anew():
    agenda = agenda_of(("a", 1), ("b", 2))
    assert agenda.take() == "a"
    agenda.offer("a", 7)
    assert taken(agenda) == ["b", "a"]


def test_a_number_is_first_if_nothing_listed_is_smaller():
    agenda = agenda_of(("a", 5), ("a", 3))
    assert agenda.is_first(3)
    assert not agenda.is_first(4)
    agenda.take()
    assert agenda.is_first(4)
