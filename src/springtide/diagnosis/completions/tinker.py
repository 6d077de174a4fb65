"""What tinker-cookbook keeps of an iteration: a summary of each trajectory, and for some groups what was said.

Summaries have rewards and numbers of tokens but no text; the conversations stand in the iteration's logtree, in the
order of the trajectories of the first groups. Where their numbers do not fit together, conversations have no reward.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from springtide.diagnosis.completions.content import Row, first, number, numbers, table, text_of, whole
from springtide.diagnosis.completions.lines import Lines, decoded
from springtide.diagnosis.completions.sample import KEPT_OF_PROMPT, Sample, shortened

SUMMARIES = "train_rollout_summaries.jsonl"
LOGTREE = "train_logtree.json"
DEEPEST = 200
"""Levels of a tree that are gone down."""

SAID = ("response", "completion", "output", "action", "assistant")
ASKED = ("problem", "prompt", "question", "task")

Conversation = tuple[str, str]
"""What was asked and what the policy said."""


def read_iteration(folder: Path) -> Iterator[Sample]:
    """The samples of a folder `iteration_000012`."""
    step = int(found[0]) if (found := re.findall(r"\d+", folder.name)) else 0
    summaries = folder / SUMMARIES
    rows = list(Lines(summaries)) if summaries.is_file() else []
    tree = folder / LOGTREE
    said = conversations(decoded(tree.read_bytes())) if tree.is_file() else []
    if rows:
        told = _fitting(rows, said)
        for (place, row), conversation in zip(rows, told, strict=True):
            yield _sample(row, conversation, step, f"{folder.name}/{place}")
        return
    for index, (asked, answered) in enumerate(said):
        place = f"{folder.name}/{LOGTREE}[{index}]"
        yield Sample(step=step, group=asked[:200], text=shortened(answered), prompt=asked, place=place)


def conversations(tree: Any) -> list[Conversation]:
    """Of a logtree, in order."""
    found: list[Conversation] = []
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEEPEST:
            continue
        if isinstance(node, dict):
            if node.get("type") == "conversation" and isinstance(node.get("messages"), list):
                found.append(_conversation(node["messages"]))
                continue
            node = list(node.values())
        if isinstance(node, list):
            waiting.extend((each, depth + 1) for each in reversed(node))
    return found


def _conversation(messages: list[Any]) -> Conversation:
    own = [message for message in messages if isinstance(message, dict)]
    spoken = [index for index, message in enumerate(own) if message.get("role") == "assistant"]
    asked = own[: spoken[0]] if spoken else own
    return text_of(asked)[:KEPT_OF_PROMPT], text_of([own[index] for index in spoken])


def _fitting(rows: list[tuple[str, Row]], said: list[Conversation]) -> list[Conversation | None]:
    """For each summary its conversation: all have one, or those of the first groups."""
    if len(said) > len(rows):
        return [None] * len(rows)
    whole_groups = len(said) == len(rows) or rows[len(said)][1].get("traj_idx") == 0
    told: list[Conversation | None] = [*said] if whole_groups else [None] * len(said)
    return told + [None] * (len(rows) - len(told))


def _sample(row: Row, conversation: Conversation | None, step: int, place: str) -> Sample:
    steps = row.get("steps")
    turns = [each for each in steps if isinstance(each, dict)] if isinstance(steps, list) else []
    logs = [table(each.get("logs")) for each in turns]
    asked = (
        conversation[0] if conversation else next((text for log in logs if (text := text_of(first(log, ASKED)))), "")
    )
    text = conversation[1] if conversation else text_of([first(log, SAID) for log in logs])
    components = numbers(table(row.get("trajectory_metrics")))
    for turn in turns:
        components |= numbers(table(turn.get("metrics")))
    lengths = [length for turn in turns if (length := whole(turn.get("ac_len"))) is not None]
    stops = [text_of(turn.get("stop_reason")).lower() for turn in turns]
    well_formed = components.get("format", components.get("parse_success"))
    own = whole(row.get("iteration"))
    return Sample(
        step=step if own is None else own,
        group=text_of(str(row.get("group_idx", asked[:200]))),
        text=shortened(text),
        prompt=shortened(asked, KEPT_OF_PROMPT),
        reward=number(first(row, ("total_reward", "final_reward"))),
        tokens=sum(lengths) if lengths else None,
        truncated="length" in stops[-1] if stops and stops[-1] else None,
        parsed=None if well_formed is None else well_formed > 0,
        components=components,
        place=place,
    )
