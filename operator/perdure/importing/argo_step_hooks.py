"""Converts the hooks of Argo's steps to blocks that run before and after them."""

import re
from dataclasses import replace
from typing import Final

from perdure.importing.argo_calls import Book, arguments, called
from perdure.importing.argo_scope import Called, Scope
from perdure.importing.expressions import UntranslatableError, condition
from perdure.importing.field_reader import Fields, Object, member, valid_name

_RUNNING: Final = re.compile(r"\s*(?:steps|tasks)\S+\.status\s*==\s*['\"]Running['\"]\s*")
"""The condition of a hook that runs when its step starts."""


def hooks_of_step(  # noqa: PLR0917 (a step, and where it is)
    book: Book, home: str, source: Fields, step: Called, original: str, scope: Scope
) -> Object:
    """Return the `onStart` and `onEnd` of a step.

    Args:
        book: The definition.
        home: Where templates are looked up.
        source: The step; takes `hooks` and `onExit`.
        step: The converted step.
        original: Its name in Argo.
        scope: The scope of references before the step.
    """
    hooks = source.part("hooks")
    old = source.text("onExit")
    if old is not None:
        hooks.data["exit"] = {"template": old}
    own = replace(step, base="step", is_loop=False)
    around = {"onStart": scope, "onEnd": scope.at(steps={**scope.steps, original: own})}
    steps: dict[str, list[Object]] = {"onStart": [], "onEnd": []}
    values: dict[str, Object] = {"onStart": {}, "onEnd": {}}
    for name in map(str, list(hooks.data)):
        hook, key = hooks.part(name), valid_name(name)
        expression = hook.text("expression")
        when = "onStart" if expression and _RUNNING.fullmatch(expression) else "onEnd"
        target = book.target(home, hook)
        made: Object = {"name": key, "needs": []}
        value: Object = {}
        if expression and when == "onEnd":
            try:
                value["when"] = "${" + condition("{{=" + expression + "}}", around[when].resolve) + "}"
                made["when"] = "${" + member("params", key) + ".when}"
            except UntranslatableError as error:
                hook.gap("expression", str(error))
        given = arguments(book, hook, target, around[when])
        if given:
            value["input"] = given
        hook.done({})
        steps[when].append({**made, **called(target, "${" + member("params", key) + ".input}" if given else None)})
        values[when] |= {key: value} if value else {}
    return {
        field: {
            "block": book.block(f"{step.name}-{'start' if field == 'onStart' else 'end'}", made_),
            **({"input": values[field]} if values[field] else {}),
        }
        for field, made_ in steps.items()
        if made_
    }
