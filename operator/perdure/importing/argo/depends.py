"""The `depends` of tasks in a DAG of Argo: conditions on how other tasks have ended, and what the end of a DAG follows from."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from perdure.importing.argo.scope import CalledStep
from perdure.importing.expressions import UntranslatableError


@dataclass(frozen=True, slots=True)
class Continuation:
    """The `continueOn` of a step: after which failures its dependents run."""

    failed: bool = False
    error: bool = False


_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z0-9_][-A-Za-z0-9_]*)(?:\.([A-Za-z]+))?|(&&|\|\||!|\(|\)))")
_STATUSES: Final = frozenset(
    {"", "Succeeded", "Failed", "Errored", "Daemoned", "AnySucceeded", "AllFailed", "Skipped", "Omitted"}
)

_ENDS: Final = frozenset({"Succeeded", "Failed", "Errored", "Skipped", "Omitted"})
"""How a task ends that is not a daemon."""
_SIGNS: Final = frozenset({"&&", "||", "!", "(", ")"})


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
        statuses = {status for name, status in self.tokens if name not in _SIGNS}
        return statuses <= {"", "Succeeded", "Daemoned"} and not {"||", "!"} & {sign for sign, _ in self.tokens}

    def always(self, tasks: Mapping[str, "TaskState"]) -> bool:
        """Whether all tasks always have the statuses that the expression requires, unless a failure ends the DAG."""
        return all(tasks[name].has(status) == "true" for name, status in self.tokens if name not in _SIGNS)

    def condition(
        self,
        tasks: Mapping[str, "TaskState"],
        shortened: Callable[[str, str, str], str] = lambda _name, _status, of: of,
    ) -> str:
        """Return the expression as a condition in CEL.

        Args:
            tasks: The conditions about the end of each task.
            shortened: Returns a shorter form of the condition that a task has a status: its name, the status, the condition.
        """
        tokens = (("(", ""), *self.tokens, (")", ""))
        parts: list[str] = []
        at = 0
        while at < len(tokens):
            name, status = tokens[at]
            end = _after_any_end(tokens, at, tasks)
            parts.append(
                "true" if end else name if name in _SIGNS else shortened(name, status, tasks[name].has(status))
            )
            at = end or at + 1
        if set(parts) <= {"true", "&&", "(", ")"}:
            return "true"
        return " ".join(parts[1:-1] if parts[0] == "(" else parts)


def _after_any_end(tokens: tuple[tuple[str, str], ...], at: int, tasks: Mapping[str, "TaskState"]) -> int:
    """Return where a part in parentheses ends that is true of a task however it ends; zero if none begins here."""
    names, statuses, end = set(), set(), at
    if tokens[at][0] != "(":
        return 0
    while tokens[end][0] != ")":
        sign, (name, status) = tokens[end][0], tokens[end + 1]
        if (sign != "||" and end != at) or name in _SIGNS:
            return 0
        names.add(name)
        statuses.add(status)
        end += 2
    covers = len(names) == 1 and statuses >= _ENDS and not any(tasks[each].called.shape.is_service for each in names)
    return end + 1 if covers else 0


@dataclass(frozen=True, slots=True)
class TaskState:
    """Conditions about the end of a task."""

    called: CalledStep
    skipped: str
    """The condition that it did not run; empty if it always runs."""
    continues: Continuation
    inherited: str = ""
    """The condition that a task that it depends on has failed, which counts where the task itself does not run."""
    errored_before: str = ""
    """The condition that it was with the status Error."""
    is_covered: bool = False
    """Whether tasks that do not run after it inherit the end of its exit hook: it has attempts, which the hook follows."""

    @property
    def branch(self) -> str:
        """The condition that the branch that ends with this task has failed; empty if it cannot, or if that ends the DAG."""
        failed = "" if self.is_covered else self.called.failed
        return either([failed, all_of([self.skipped, self.inherited]) if self.passes_on else ""])

    @property
    def errored(self) -> str:
        """The condition that the branch that ends with this task has the status Error; empty if it cannot."""
        before = all_of([self.skipped, self.errored_before]) if self.skipped and self.errored_before else ""
        return either(["" if self.is_covered else self.called.passes_error, before])

    @property
    def ends_as_error(self) -> str:
        """The condition that `ends` is true, and the status is Error."""
        before = self.errored_before and self.skipped and not self.continues.error
        inherited = all_of([self.skipped, self.errored_before]) if before else ""
        return either([inherited, "" if self.continues.error else self.called.errored])

    @property
    def passes_on(self) -> bool:
        """Whether the task may not run although a task that it depends on has failed."""
        return bool(self.skipped and self.inherited)

    @property
    def ends(self) -> str:
        """The condition that the DAG fails because of this task, the last one of a branch; empty if no condition decides that."""
        continues, error = self.continues, self.errored_before
        failed = all_of([self.inherited, f"!{error}" if error and continues.error else ""])
        before = "" if not self.passes_on else failed if not continues.failed else "" if continues.error else error
        inherited = all_of([self.skipped, before]) if before else ""
        failed = self.has("Failed") if self.called.failed and not continues.failed else ""
        return either([inherited, failed, "" if continues.error else self.called.errored])

    def has(self, status: str) -> str:
        """Return the condition that the task has a status."""
        failed, errored, omitted = self.called.failed, self.called.errored, self.called.omitted
        match status:
            case "Errored":
                return errored or "false"
            case "Failed":
                return all_of([failed, f"!{errored}" if errored else ""]) if failed else "false"
            case "AnySucceeded":
                return self.called.any_succeeded
            case "AllFailed":
                return self.called.all_failed if failed else "false"
            case "Omitted":
                return f"({omitted})" if omitted else "false"
            case "Skipped":
                return all_of([self.skipped, f"!({omitted})" if omitted else ""]) if self.skipped else "false"
            case "Daemoned" if not self.called.shape.is_service:
                return "false"
            case "Succeeded" if self.called.shape.is_service:
                return "false"
        prevented = self.skipped if status in {"Succeeded", "Daemoned"} else omitted
        return all_of([*self._not_failed(status), f"!({prevented})" if prevented else ""])

    def _not_failed(self, status: str) -> list[str]:
        failed, errored = self.called.failed, self.called.errored
        if status or self.continues == Continuation():
            return [f"!{failed}"] if failed else []
        if self.continues.error:
            return [] if self.continues.failed or not failed else [f"!{self.has('Failed')}"]
        return [f"!{errored}"] if errored else []


def all_of(parts: list[str]) -> str:
    """Return the condition that all of several are true, except for empty ones."""
    found = [part for part in parts if part]
    return f"({' && '.join(found)})" if len(found) > 1 else found[0] if found else "true"


def either(parts: list[str]) -> str:
    """Return the condition that one of several is true; empty ones never are."""
    found = list(dict.fromkeys(part for part in parts if part))
    return f"({' || '.join(found)})" if len(found) > 1 else "".join(found)


def parse_depends(text: str) -> Depends:
    """Read a `depends`.

    Raises:
        UntranslatableError: The text is not a valid `depends`.
    """
    tokens: list[tuple[str, str]] = []
    at, open_, ended = 0, 0, False  # ended: whether a whole condition is before this place
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        sign = found[3] if found else ""
        fits = ended if sign in {"&&", "||", ")"} else not ended
        open_ += {"(": 1, ")": -1}.get(sign or "", 0)
        if found is None or (found[2] or "") not in _STATUSES or not fits or open_ < 0:
            break
        ended = not sign or sign == ")"
        tokens.append((found[1] or found[3], found[2] or ""))
        at = found.end()
    if text[at:].strip() or open_ or not ended:
        raise UntranslatableError(f"`{text}` is not a valid condition on tasks; see Argo's enhanced depends logic")
    return Depends(tuple(tokens))


def observed(depends: Mapping[str, Depends], continuing: set[str]) -> set[str]:
    """Return the tasks whose failure does not end the DAG: another task may run after it, or it does not matter.

    Args:
        depends: What each task depends on.
        continuing: The tasks with `continueOn`. If one of them is the last and does not run, the DAG does not fail either.
    """
    last = continuing - {name for each in depends.values() for name in each.names}
    late = {name for name, each in depends.items() if not each.is_plain} | last
    return {above for name in late for above in ancestors(name, depends)}


def ancestors(name: str, depends: Mapping[str, Depends]) -> list[str]:
    """Return the tasks that a task needs, directly or indirectly."""
    found: dict[str, None] = {}
    queue = list(depends[name].names) if name in depends else []
    while queue:
        each = queue.pop()
        if each not in found and each in depends:
            found[each] = None
            queue += depends[each].names
    return list(found)


def ordered(depends: Mapping[str, Depends], tasks: Mapping[str, Any]) -> list[str]:
    """Return the tasks in topological order, otherwise in the original order."""
    order: dict[str, None] = {}
    for first in tasks:
        path = [] if first in order else [first]
        while path:
            name = path[-1]
            before = [each for each in depends[name].names if each in tasks and each not in order and each not in path]
            if before:
                path.append(before[0])
            else:
                order[path.pop()] = None
    return list(order)
