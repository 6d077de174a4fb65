"""Errors that a user can do something about: the command line prints one sentence and exits with `exit_code`."""


class SpringtideError(Exception):
    """Base of all errors that are the interface, not a bug."""

    exit_code = 1


class UsageError(SpringtideError):
    """Bad input: a recipe, a path, an option. The message names the field, the value and the remedy."""

    exit_code = 2


class MissingExtraError(UsageError):
    """A feature needs an optional dependency."""

    def __init__(self, *, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra '{extra}': run `pip install 'springtide[{extra}]'`.")


class RunDamagedError(SpringtideError):
    """A run folder cannot be continued: no readable checkpoint, a journal that does not match."""

    exit_code = 3


class UnsafeSandboxError(SpringtideError):
    """The host offers no isolation that is safe for model output, and the user has not opted in by name."""

    exit_code = 4


class StorageFullError(SpringtideError):
    """The disk is full; what was written before is intact."""

    exit_code = 5


class InvalidEpisodeError(Exception):
    """Raised inside an environment or a sandbox: this episode says nothing about the policy. Becomes `Invalid`."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
