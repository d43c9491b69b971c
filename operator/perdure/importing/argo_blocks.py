"""Blocks without a template of Argo that converted steps need."""

from dataclasses import replace

from perdure.importing.argo_calls import CallTarget, called
from perdure.importing.argo_retry import timeout
from perdure.importing.argo_scope import Shape
from perdure.importing.field_reader import Fields, Names, Object, member


class ExtraBlocks:
    """The blocks of a definition."""

    def __init__(self) -> None:
        self.made: list[Object] = []
        self.names = Names()

    def caught(self) -> str:
        """Return the block that converts a failure to an output."""
        return self._once("caught", [{"name": "go-on", "return": {"output": {"failed": "${params}"}}}])

    def add(self, wish: str, steps: list[Object]) -> str:
        """Add a block with a unique name."""
        name = self.names.fresh(wish)
        self.made.append({"name": name, "steps": steps})
        return name

    def holding(self, limits: list[Object], target: CallTarget) -> CallTarget:
        """Return a target that holds limits while another one runs: a block with a single step.

        Args:
            limits: The `limits` of the step; if there are none, the target is returned.
            target: What runs while the step holds them.
        """
        if not limits:
            return target
        name = self.names.fresh(f"{target.name}-locked")
        step = {"name": target.name, "limits": limits, **called(target, "${params}")}
        output = "${" + member("steps", target.name) + ".output}"
        self.made.append({"name": name, "steps": [step], "output": output})
        return replace(target, name=name, kind="block", wait={})

    def missing(self, wish: str, outputs: tuple[str, ...] = ()) -> CallTarget:
        """Add a block that fails, in place of a template that was not imported."""
        message = f"the template `{wish}` was not imported"
        name = self._once(f"missing-{wish}", [{"name": "missing", "fail": {"type": "NotImported", "message": message}}])
        return CallTarget(name, "block", Shape((*outputs, "result"), is_block=True))

    def _once(self, wish: str, steps: list[Object]) -> str:
        name = self.names.of("", wish)
        if not any(each["name"] == name for each in self.made):
            self.made.append({"name": name, "steps": steps})
        return name


def waiting(source: Fields, name: str) -> CallTarget:
    """Convert a template that suspends: steps that call it wait for a signal or a time."""
    source.drop("name", "inputs")
    suspend = source.part("suspend")
    length = timeout(suspend, "duration")
    outputs = source.part("outputs").parts("parameters")
    shape = Shape(tuple(each.text("name") or "" for each in outputs), is_block=True)
    signal = {"name": name, **({"timeout": length} if length else {})}
    wait: Object = {"sleep": {"duration": length}} if length and not outputs else {"waitForSignal": signal}
    if "waitForSignal" in wait:
        source.note("suspend", f"`argo resume` is `perdure signal RUN --name {name}`, with the outputs as input")
    suspend.done({})
    source.drop("outputs")
    source.done({})
    return CallTarget(name, "wait", shape, wait=wait)
