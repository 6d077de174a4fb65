"""Files of others, line by line: bounded memory, and one sentence with file and line for whatever is wrong."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from springtide.core.errors import UsageError
from springtide.settings import show_value

LINE_MAX = 32 * 2**20
"""Bytes; a session with the tokens of all its calls takes a few MiB."""

TOKENS_MAX = 2**31
SECONDS_MAX = 1e9
NAME_MAX = 1000

T = TypeVar("T")


def bad(path: Path, line: int, what: str) -> UsageError:
    return UsageError(f"{path}, line {line}: {what}; correct the line, or leave it out.")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, from 1. UsageError for what is no text."""
    number = 0
    with path.open("rb") as file:
        while raw := file.readline(LINE_MAX + 1):
            number += 1
            if len(raw) > LINE_MAX:
                raise bad(path, number, f"longer than {LINE_MAX // 2**20} MiB")
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise bad(path, number, "this is not UTF-8 text") from None
            if text.strip():
                yield number, text


def first_line(path: Path) -> str:
    """Empty if the file is. UsageError for what is no text."""
    return next((text for _, text in numbered_lines(path)), "")


def cells(path: Path, number: int, text: str) -> list[str]:
    """The fields of a line of CSV."""
    try:
        (found,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise bad(path, number, f"this is not CSV ({error})") from None
    return [cell.strip() for cell in found]


class Row:
    """A line of CSV by the names of its columns."""

    def __init__(self, path: Path, number: int, cells: dict[str, str]) -> None:
        self._path = path
        self.number = number
        self._cells = cells

    def text(self, column: str) -> str:
        """Empty where the column is."""
        found = self._cells.get(column, "")
        if len(found) > NAME_MAX:
            raise bad(self._path, self.number, f"{column} has more than {NAME_MAX} characters")
        return found

    def whole(self, column: str, *, least: int = 0) -> int:
        value = self.number_at(column, most=TOKENS_MAX)
        if value != int(value) or value < least:
            shown = show_value(self.text(column))
            raise bad(self._path, self.number, f"{column} = {shown} is no whole number from {least} to {TOKENS_MAX}")
        return int(value)

    def number_at(self, column: str, *, most: float = SECONDS_MAX) -> float:
        try:
            value = float(self.text(column))
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            shown = show_value(self.text(column))
            raise bad(self._path, self.number, f"{column} = {shown} is no number from 0 to {most:g}")
        return value


def rows(path: Path) -> Iterator[Row]:
    """Of a CSV whose first line names the columns."""
    lines = numbered_lines(path)
    number, text = next(lines)
    columns = cells(path, number, text)
    for number, text in lines:
        found = cells(path, number, text)
        if len(found) != len(columns):
            raise bad(path, number, f"{len(found)} fields, and the first line has {len(columns)}")
        yield Row(path, number, dict(zip(columns, found, strict=True)))


def records(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    """The JSON object of each line."""
    decoder = msgspec.json.Decoder(kind)
    for number, text in numbered_lines(path):
        try:
            yield number, decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad(path, number, f"this is not a JSON object as expected ({error})") from None
