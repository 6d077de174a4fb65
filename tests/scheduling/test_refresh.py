"""Whose KV is computed again next."""

from springtide.core.member import Member, Purpose
from springtide.ports.engine import StaleKv
from springtide.scheduling.refresh import Piece, Refresh


def stale(group, slot=0, *, tokens=1000, fresh=0, oldest=1):
    return StaleKv(member=Member(Purpose.TRAIN, group, slot), tokens=tokens, fresh=fresh, oldest=oldest)


def test_the_oldest_kv_goes_first_then_what_is_begun_then_the_oldest_group():
    sessions = [stale(1, oldest=3), stale(2, oldest=2), stale(4, oldest=2, fresh=300), stale(0, oldest=3)]
    order = []
    while sessions:
        first = Refresh(2000).next(sessions).member
        order.append(first.group)
        sessions = [session for session in sessions if session.member != first]
    assert order == [4, 2, 0, 1]


def test_a_piece_is_no_larger_than_asked_for_and_ends_where_the_kv_does():
    assert Refresh(256).next([stale(0)]) == Piece(Member(Purpose.TRAIN, 0, 0), 256)
    assert Refresh(256).next([stale(0, fresh=900)]) == Piece(Member(Purpose.TRAIN, 0, 0), 100)
    assert Refresh(256).next([]) is None
