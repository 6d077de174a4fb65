import pytest
import torch

from springtide.core.member import Member, Purpose
from springtide.engines import compaction
from springtide.engines.blocks import Blocks
from springtide.engines.compaction import compact
from springtide.engines.residency import ResidentSessions
from springtide.engines.session import Session
from springtide.engines.storage import LayerShape, PlaneShape, Storage

LAYERS = [LayerShape(PlaneShape(2, 4), PlaneShape(2, 4))]


class House:
    """Sessions in blocks of 64 tokens, side by side; each one's KV is filled with its own number."""

    def __init__(self, count: int) -> None:
        self.storage = Storage(LAYERS, 64 * 128, device=torch.device("cpu"), dtype=torch.float32)
        self.blocks = Blocks(64 * 128)
        self.residents = ResidentSessions(self.storage, self.blocks, host_capacity=0)
        self.sessions = [Session(Member(Purpose.TRAIN, number, 0), 0) for number in range(count)]
        for number, session in enumerate(self.sessions):
            self.residents.add(session)
            session.tokens = [0] * 40
            self.residents.make_hot(session, 40)
            session.computed = 39
            self._keys(session).fill_(number)

    def _keys(self, session: Session) -> torch.Tensor:
        assert session.block is not None
        return self.storage.keys(0)[session.block.offset * 8 :][: 64 * 8].view(2, 64, 4)[:, : session.computed]

    def run(self, numbers: list[int]) -> list[int]:
        """Compact with these running; their block numbers afterwards."""
        for session in self.sessions:
            session.running = session.member.group in numbers
        compact([s for s in self.sessions if s.running], self.residents, self.storage)
        for session in self.sessions:
            assert bool((self._keys(session) == session.member.group).all()), "everyone's KV came along"
        return [s.block.offset // 64 for s in self.sessions if s.running and s.block is not None]


@pytest.fixture
def narrow_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that span no holes, and moves that always pay."""
    monkeypatch.setattr("springtide.engines.batch.HOLE_BYTES", {"cpu": 0})
    monkeypatch.setattr(compaction, "GROUP_SECONDS", 1.0)


@pytest.mark.usefixtures("narrow_groups")
def test_running_sessions_change_places_with_paused_ones() -> None:
    house = House(12)
    assert sorted(house.run([0, 1, 2, 7, 9, 11])) == [0, 1, 2, 3, 4, 5]
    again = sorted(house.run([3, 5, 7]))
    assert again == list(range(again[0], again[0] + 3))
    assert house.blocks.reserved == 12 * 64


@pytest.mark.usefixtures("narrow_groups")
def test_gaps_that_ended_sessions_left_are_filled() -> None:
    house = House(10)
    for number in (1, 2, 6):
        house.residents.remove(house.sessions[number])
    house.sessions = [s for s in house.sessions if s.member.group not in (1, 2, 6)]
    assert sorted(house.run([0, 3, 4, 5, 7, 8, 9])) == list(range(3, 10))
    assert house.blocks.reserved == 7 * 64


@pytest.mark.usefixtures("narrow_groups")
def test_moves_that_cost_more_than_they_save_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BYTES_PER_SECOND", {"cpu": 1.0})
    assert House(6).run([0, 5]) == [0, 5]
