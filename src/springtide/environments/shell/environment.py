"""The shell as an environment: the agent's text is a command, `answer TEXT` or `done`.

`answer` writes its text to the file `answer`; grading looks at the state of the box alone. Limits that the agent's own
command exceeds end the episode as a valid failure; only what the sandbox itself gets wrong is invalid.
"""

from contextlib import suppress

from springtide.core.demonstration import Demonstration
from springtide.core.errors import InvalidEpisodeError
from springtide.core.message import Message
from springtide.core.outcome import Ending, InvalidCause, Outcome, Valid
from springtide.core.task import Task
from springtide.environments.shell.generate import puzzle_of
from springtide.environments.shell.puzzle import Puzzle, Script, shown
from springtide.ports.environment import Observation
from springtide.ports.sandbox import Box, CommandEnd, Limits, Sandbox

SYSTEM = "Reply with one shell command, answer N, or done."
DONE, ANSWER = "done", "answer "

_ENDINGS = {
    CommandEnd.TIMEOUT: Ending.TIME_LIMIT,
    CommandEnd.CPU_LIMIT: Ending.TIME_LIMIT,
    CommandEnd.OOM: Ending.MEMORY_LIMIT,
    CommandEnd.OUTPUT_LIMIT: Ending.OUTPUT_LIMIT,
    CommandEnd.DISK_FULL: Ending.DISK_LIMIT,
}


class ShellEnvironment:
    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._box: Box | None = None
        self._puzzle: Puzzle | None = None
        self._family = ""
        self._commands = 0

    async def reset(self, task: Task) -> Observation:
        self._puzzle = puzzle_of(task)
        self._family = task.data["family"]
        self._box = await self._sandbox.open(files=self._puzzle.files, limits=self._limits)
        return Observation(messages=opening(self._puzzle))

    async def step(self, action: Message) -> Observation:
        assert self._box is not None
        text = action.text.strip()
        if text == DONE:
            return Observation(done=True)
        if text.startswith(ANSWER):
            # What prevents this is the agent's doing (a folder in the way, a full disk): then that is what is graded.
            with suppress(OSError):
                await self._box.write({"answer": text.removeprefix(ANSWER).strip().encode() + b"\n"})
            return Observation(done=True)
        if not text or "\0" in text:
            return _reply("no command")
        result = await self._box.run(text)
        self._commands += 1
        if result.end is CommandEnd.SANDBOX_ERROR:
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, result.detail or "The sandbox failed.")
        if result.end in _ENDINGS:
            return Observation(done=True, ending=_ENDINGS[result.end])
        if result.end is CommandEnd.PIDS_LIMIT:
            return _reply("too many processes")
        return _reply(shown(result.output))

    async def verify(self, ending: Ending) -> Outcome:
        assert self._box is not None
        assert self._puzzle is not None
        solved = False
        if ending is Ending.ANSWERED:
            solved = self._puzzle.solved(await self._box.read(self._puzzle.target, limit=4096))
        metrics = {"commands": float(self._commands), f"solved_{self._family}": float(solved)}
        return Valid(reward=float(solved), ending=ending, metrics=metrics)

    async def close(self) -> None:
        if self._box is not None:
            await self._box.close()


def opening(puzzle: Puzzle) -> tuple[Message, ...]:
    return (Message(role="system", content=SYSTEM), Message(role="user", content=puzzle.prompt))


def demonstration(task: Task, script: Script, *, flaw: str) -> Demonstration:
    """The conversation that `script` gives in this environment, without running it."""
    messages = list(opening(puzzle_of(task)))
    for turn in script:
        messages.append(Message(role="assistant", content=turn.text))
        if turn is not script[-1]:
            messages.append(Message(role="user", content=turn.output))
    return Demonstration(task=task, messages=tuple(messages), success=not flaw, flaw=flaw)


def _reply(text: str) -> Observation:
    return Observation(messages=(Message(role="user", content=text),))
