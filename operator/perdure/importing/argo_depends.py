"""The `depends` of Argo's DAGs: the tasks that a task needs, and the condition to run it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from perdure.importing.expressions import UntranslatableError

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z0-9_][-A-Za-z0-9_]*)(?:\.([A-Za-z]+))?|(&&|\|\||!|\(|\)))")
_ENDED_WELL: Final = frozenset({"", "Succeeded", "Daemoned", "AnySucceeded"})
_FAILED: Final = frozenset({"Failed", "Errored", "AllFailed"})
_STATUSES: Final = _ENDED_WELL | _FAILED | {"Skipped", "Omitted"}


@dataclass(frozen=True, slots=True)
class Depends:
    """A parsed `depends`."""

    tokens: tuple[tuple[str, str], ...]
    """Names with their statuses, and operators without one."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its tasks, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.tokens if name not in _SIGNS))

    @property
    def is_plain(self) -> bool:
        """Whether the expression only requires that all tasks have succeeded."""
        return not self.observed

    @property
    def observed(self) -> tuple[str, ...]:
        """Return the tasks whose failure can still satisfy the expression."""
        chunks: list[list[tuple[str, str]]] = [[]]
        depth = 0
        for token in self.tokens:
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            if depth == 0 and token[0] == "||":
                return self.names
            if depth == 0 and token[0] == "&&":
                chunks.append([])
            else:
                chunks[-1].append(token)
        plain = {chunk[0][0] for chunk in chunks if len(chunk) == 1 and chunk[0][1] in {"", "Succeeded", "Daemoned"}}
        return tuple(name for name in self.names if name not in plain)

    def condition(self, tasks: Mapping[str, "TaskState"]) -> str:
        """Return the expression as a condition in CEL.

        Args:
            tasks: The conditions about the end of each task.
        """
        return " ".join(tasks[name].has(status) if name not in _SIGNS else name for name, status in self.tokens)


_SIGNS: Final = frozenset({"&&", "||", "!", "(", ")"})


@dataclass(frozen=True, slots=True)
class TaskState:
    """Conditions about the end of a task."""

    failed: str
    """The condition that it failed; empty if a failure ends the DAG."""
    skipped: str
    """The condition that it did not run; empty if it always runs."""
    omitted: str
    """The condition that it did not run because of `depends`; empty if it has none."""
    continues: bool = True
    """Whether a failure counts as a success for tasks that reference this one without a status."""

    def has(self, status: str) -> str:
        """Return the condition that the task has a status."""
        not_failed = f"!{self.failed}" if self.failed and not (self.continues and not status) else ""
        if status in _FAILED:
            return self.failed or "false"
        if status == "Omitted":
            return f"({self.omitted})" if self.omitted else "false"
        if status == "Skipped":
            parts = [self.skipped, f"!({self.omitted})" if self.omitted else ""]
            return _all(parts) if self.skipped else "false"
        skipped = self.skipped if status in {"Succeeded", "AnySucceeded"} else self.omitted
        return _all([not_failed, f"!({skipped})" if skipped else ""])


def _all(parts: list[str]) -> str:
    found = [part for part in parts if part]
    return f"({' && '.join(found)})" if len(found) > 1 else found[0] if found else "true"


def read(text: str) -> Depends:
    """Read a `depends`.

    Raises:
        UntranslatableError: The text is not a valid `depends`.
    """
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None or (found[2] or "") not in _STATUSES:
            raise UntranslatableError(f"`{text}` is not a valid condition on tasks; see Argo's enhanced depends logic")
        tokens.append((found[1] or found[3], found[2] or ""))
        at = found.end()
    return Depends(tuple(tokens))
