"""What the members of a group have on the device together."""

from dataclasses import dataclass


@dataclass(slots=True)
class SharedPrompt:
    """A group's prompt on the device: `hot` sessions have it, `open` of them pause and may be moved out."""

    tokens: int
    hot: int = 0
    open: int = 0

    @property
    def open_tokens(self) -> int:
        return self.tokens if self.open == self.hot else 0
