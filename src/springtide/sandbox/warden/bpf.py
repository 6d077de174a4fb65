"""A small assembler for the kernel's classic BPF, as seccomp reads it.

Every line is one instruction; jumps name labels and go forward only. `""` as a target is the next line.
"""

from __future__ import annotations

from struct import Struct

NEXT = ""

_INSTRUCTION = Struct("<HBBI")
_LOAD_WORD = 0x20
_JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BITS = 0x15, 0x35, 0x45
_RETURN = 0x06


class Assembler:
    def __init__(self) -> None:
        self._lines: list[tuple[int, int, str, str]] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        assert name not in self._labels, name
        self._labels[name] = len(self._lines)

    def load(self, offset: int) -> None:
        """A := the 32-bit word of the seccomp data at `offset`."""
        self._lines.append((_LOAD_WORD, offset, NEXT, NEXT))

    def if_equal(self, value: int, then: str = NEXT, otherwise: str = NEXT) -> None:
        self._lines.append((_JUMP_EQUAL, value, then, otherwise))

    def if_at_least(self, value: int, then: str = NEXT, otherwise: str = NEXT) -> None:
        self._lines.append((_JUMP_AT_LEAST, value, then, otherwise))

    def if_any_bits(self, mask: int, then: str = NEXT, otherwise: str = NEXT) -> None:
        self._lines.append((_JUMP_ANY_BITS, mask, then, otherwise))

    def give(self, action: int) -> None:
        """End with `action`."""
        self._lines.append((_RETURN, action, NEXT, NEXT))

    def assemble(self) -> bytes:
        """The program as an array of `struct sock_filter`."""
        return b"".join(
            _INSTRUCTION.pack(code, self._distance(line, then), self._distance(line, otherwise), value)
            for line, (code, value, then, otherwise) in enumerate(self._lines)
        )

    def _distance(self, line: int, target: str) -> int:
        if target == NEXT:
            return 0
        distance = self._labels[target] - line - 1
        assert 0 <= distance <= 255, f"jump from {line} to {target} is {distance} instructions long"
        return distance
