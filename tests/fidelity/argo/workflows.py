"""Random workflows of Argo, and what their containers do: both follow from a seed.

Each container gets a parameter `id`, which names the call in the whole workflow, and mostly a parameter `v`, which carries what
the call has read: outputs, statuses, items, and parameters. So the inputs of all containers show what a controller has decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, Final

from fidelity.argo.controller import Outcome

Json = dict[str, Any]

_TEXTS: Final = ("a", "b", "7", "10", "true", "x y", "007", "1.50", "null", "c-d", "", "é")
"""Values of outputs and parameters; some look like other types than text."""
_LISTS: Final = ('["p","q"]', "[1,2,3]", '["one"]', "[]", '[{"k":"m"},{"k":"n"}]')
"""Values in JSON. Conditions do not read them: Argo cannot parse a condition with quotes in a value."""
_MAX_DEPTH: Final = 3
_DEADLINE: Final = 25
"""The time limit of workflows that have one, in seconds. Everything that does not hang ends long before."""


@dataclass
class Leaf:
    """A template with a container."""

    name: str
    failing: float
    """The share of its attempts that fail."""
    lists: bool
    """Whether it returns lists in JSON."""
    prints: bool
    """Whether its output is its stdout, not a file."""
    default: str | None
    """The default of its output."""
    forgets: float
    """The share of its attempts that succeed without writing the file of the output."""
    hangs: float
    has_value: bool
    """Whether it has the parameter `v`."""
    retries: int | None = None
    backoff: bool = False


@dataclass
class RandomCase:
    """A random workflow, and its containers."""

    seed: int
    manifest: Json
    leaves: dict[str, Leaf] = field(default_factory=dict)

    def outcome(self, template: str, values: Mapping[str, str], attempt: int) -> Outcome:
        """Return how an attempt ends.

        Args:
            template: The name of the template.
            values: Its input parameters, of which `id` names the call.
            attempt: Its number, from 1.
        """
        leaf = self.leaves[template]
        random = Random(f"{self.seed}/{template}/{values.get('id')}/{attempt}")
        slowest = (
            1_000 if "activeDeadlineSeconds" in self.manifest["spec"] else 30_000
        )  # nothing else is near a deadline
        milliseconds = random.randrange(100, slowest)
        output = random.choice(_LISTS if leaf.lists else _TEXTS)
        if leaf.prints:
            output = output or "-"  # a script that prints nothing returns null
        if random.random() < leaf.hangs:
            return Outcome(milliseconds, hangs=True)
        if random.random() < leaf.failing:
            return Outcome(milliseconds, random.choice((1, 2, 3)))
        if leaf.prints:
            return Outcome(milliseconds, printed=output)
        return Outcome(milliseconds, files={} if random.random() < leaf.forgets else {"out": output})


@dataclass
class _Known:
    """A task that others can refer to."""

    name: str
    prefix: str
    """`tasks` or `steps`."""
    output: str | None
    """How to refer to its output: `outputs.result` or `outputs.parameters.out`."""
    loop: bool
    lists: bool
    skippable: bool
    robust: bool
    """Whether its output exists also if it has failed."""
    continues: bool
    leaf: Leaf | None
    free: bool = False
    """Whether it runs without conditions."""

    @property
    def surely(self) -> bool:
        """Whether its output exists, however the task ends."""
        return self.free and self.leaf is not None and (self.robust or not (self.leaf.failing or self.leaf.forgets))

    def tag(self, of: str) -> str:
        return "{{" + f"{self.prefix}.{self.name}.{of}" + "}}"


def random_case(seed: int) -> RandomCase:
    """Return the workflow of a seed, and what its containers do."""
    return _Generator(seed).case


class _Generator:
    """Generates one workflow."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(f"workflow/{seed}")
        self._templates: list[Json] = []
        self._leaves: dict[str, Leaf] = {}
        self._groups: list[tuple[str, bool]] = []
        self._count = 0
        self._budget = 18
        """About how many containers the workflow may still have."""

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    @cached_property
    def case(self) -> RandomCase:
        """The case."""
        deadline, hangs = self._random.choice([(True, True), (False, True)] + [(False, False)] * 15)
        for _ in range(self._random.randint(2, 4)):
            self._leaf(hangs=0.3 if hangs and self._chance(0.6) else 0.0, limited=not deadline)
        spec: Json = {
            "entrypoint": "main",
            "arguments": {
                "parameters": [
                    {"name": "w0", "value": self._random.choice(_TEXTS)},
                    {"name": "w1", "value": self._random.choice(("a", "b", "3"))},
                    {"name": "list", "value": self._random.choice(_LISTS)},
                ]
            },
        }
        if deadline:
            spec["activeDeadlineSeconds"] = _DEADLINE
        self._group("main", 1)
        if self._chance(0.35):
            self._exit(spec)
        spec["templates"] = self._templates
        metadata = {"name": f"seed-{self._seed}"}
        manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}
        return RandomCase(self._seed, manifest, self._leaves)

    # Containers

    def _leaf(self, hangs: float = 0.0, *, limited: bool = False) -> None:
        name = f"leaf{len(self._leaves)}"
        prints = self._chance(0.3)
        leaf = Leaf(
            name,
            failing=self._random.choice((0, 0, 0, 0.15, 0.4, 1)),
            lists=self._chance(0.3),
            prints=prints,
            default=None if prints or self._chance(0.5) else self._random.choice(("none", "0", "")),
            forgets=self._random.choice((0, 0, 0.3)),
            hangs=hangs,
            has_value=self._chance(0.85),
        )
        self._leaves[name] = leaf
        inputs: list[Json] = [{"name": "id"}]
        if leaf.has_value:
            inputs.append({"name": "v", **({"value": self._random.choice(_TEXTS)} if self._chance(0.5) else {})})
        variables = [{"name": each["name"], "value": "{{inputs.parameters." + each["name"] + "}}"} for each in inputs]
        template: Json = {"name": name, "inputs": {"parameters": inputs}}
        container: Json = {"image": "busybox", "command": ["sh"], "env": variables}
        if prints:
            template["script"] = {**container, "source": 'work "$id" "$v"'}
        else:
            template["container"] = {**container, "args": ["-c", 'work "$id" "$v" > /tmp/out']}
            source: Json = {"path": "/tmp/out", **({} if leaf.default is None else {"default": leaf.default})}
            template["outputs"] = {"parameters": [{"name": "out", "valueFrom": source}]}
        if self._chance(0.35):
            template["retryStrategy"] = self._retries(leaf)
        if hangs and limited:
            template["activeDeadlineSeconds"] = 40
        self._templates.append(template)

    def _retries(self, leaf: Leaf | None) -> Json:
        strategy: Json = {"limit": self._random.choice((0, 1, 2, "1", "2"))}
        if self._chance(0.5):
            strategy["retryPolicy"] = self._random.choice(("Always", "OnFailure", "OnError"))
        if leaf and self._chance(0.25):
            strategy["expression"] = self._random.choice(
                (
                    "asInt(lastRetry.exitCode) > 1",
                    "lastRetry.exitCode != '2'",
                    "lastRetry.status == 'Failed'",
                    "lastRetry.status == 'Error'",
                    "asInt(lastRetry.exitCode) in [1, 3]",
                )
            )
        if self._chance(0.3):
            strategy["backoff"] = {"duration": "1", "factor": 2} if self._chance(0.5) else {"duration": "1s"}
        return strategy

    # Lists of steps, and DAGs

    def _group(self, name: str, depth: int) -> None:
        template: Json = {"name": name}
        if name != "main":
            template["inputs"] = {"parameters": [{"name": "id"}, {"name": "p", "value": "P"}]}
        made = self._dag(name, depth) if self._chance(0.65) else self._steps(name, depth)
        known: list[_Known] = made.pop("known")
        template |= made
        outputs = self._outputs(known)
        if outputs:
            template["outputs"] = {"parameters": outputs}
        if name != "main" and self._chance(0.1):
            template["retryStrategy"] = self._retries(None)
        self._templates.append(template)
        self._groups.append((name, bool(outputs)))

    def _outputs(self, known: Sequence[_Known]) -> list[Json]:
        sure = [each for each in known if each.output and each.surely and not each.loop]
        if not sure or self._chance(0.4):
            return []
        of = self._random.choice(sure)
        if self._chance(0.25) and of.output == "outputs.parameters.out":
            source: Json = {"expression": f"{of.prefix}['{of.name}'].{of.output}"}
        else:
            source = {"parameter": of.tag(str(of.output))}
        return [{"name": "out", "valueFrom": source}]

    def _dag(self, name: str, depth: int) -> Json:
        known: list[_Known] = []
        ancestors: dict[str, set[str]] = {}
        needed: dict[str, set[str]] = {}
        tasks: list[Json] = []
        plain = self._chance(0.35)  # Argo rejects DAGs with both forms
        for _ in range(self._random.randint(2, 5)):
            if self._budget <= 0 and tasks:
                break
            tasks.append(self._task(name, depth, known, ancestors, needed, plain=plain))
        if not plain and self._chance(0.5):
            tasks.append(self._collector(name, known, ancestors))
            known = []
        dag: Json = {"tasks": tasks}
        if self._chance(0.3):
            dag["failFast"] = self._chance(0.4)
        return {"dag": dag, "known": known}

    def _task(
        self,
        home: str,
        depth: int,
        known: list[_Known],
        ancestors: dict[str, set[str]],
        needed: dict[str, set[str]],
        *,
        plain: bool,
    ) -> Json:
        before = self._random.sample(known, min(len(known), self._random.choice((0, 1, 1, 2))))
        task: Json = {}
        sure: set[str] = set()
        if before and plain:
            task["dependencies"] = [each.name for each in before]
            sure = {each.name for each in before if not each.continues}
        elif before:
            task["depends"], sure = self._depends(before)
        above = {name for each in before for name in (each.name, *ancestors[each.name])}
        sure |= {name for each in list(sure) for name in needed[each]}
        visible = [each for each in known if each.name in above]
        continues = plain and self._chance(0.3)
        of = self._call(task, home, depth, "tasks", visible, sure, continues=continues)
        if continues:
            task["continueOn"] = self._random.choice(
                ({"failed": True}, {"failed": True, "error": True}, {"error": True})
            )
        of.free = not before and "when" not in task
        known.append(of)
        ancestors[of.name], needed[of.name] = above, sure
        return task

    def _depends(self, before: Sequence[_Known]) -> tuple[str, set[str]]:
        """Return a `depends`, and the tasks that have succeeded if it is met."""
        parts, sure = [], set()
        for each in before:
            if self._chance(0.4):
                parts.append(each.name)
                sure.add(each.name)
                continue
            some = ["Succeeded", "Failed", "Errored", "Skipped", "Omitted"]
            some += ["AnySucceeded", "AllFailed"] if each.loop else []
            chosen = self._random.sample(some, self._random.choice((1, 1, 2, 3)))
            words = [f"{each.name}.{status}" for status in chosen]
            if chosen == ["Succeeded"]:
                sure.add(each.name)
            part = " || ".join(words)
            parts.append(f"({part})" if len(words) > 1 or self._chance(0.2) else part)
        if len(parts) > 1 and self._chance(0.3):
            return " || ".join(parts), set()
        if len(parts) == 1 and "." in parts[0] and self._chance(0.15):
            return f"!({parts[0]})", set()
        return " && ".join(parts), sure

    def _collector(self, home: str, known: Sequence[_Known], ancestors: dict[str, set[str]]) -> Json:
        """Return a task that reads the statuses of all others, however they end."""
        used = {name for each in ancestors.values() for name in each}
        leaves = [each for each in known if each.name not in used]
        ends = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")
        depends = " && ".join("(" + " || ".join(f"{each.name}.{end}" for end in ends) + ")" for each in leaves)
        name = self._name()
        value = " ".join(each.tag("status") for each in known)
        parameters = [{"name": "id", "value": self._id(home, name)}, {"name": "v", "value": value}]
        return {"name": name, "depends": depends, "template": self._reader(), "arguments": {"parameters": parameters}}

    def _reader(self, *, fails: bool = True) -> str:
        """Return a leaf with a value, which does not hang; a new one if there is none.

        Args:
            fails: Whether it may fail.
        """
        while True:
            found = [
                each.name
                for each in self._leaves.values()
                if each.has_value
                and not each.hangs
                and not each.prints
                and (fails or not (each.failing or each.forgets))
            ]
            if found:
                return self._random.choice(found)
            self._leaf()

    def _steps(self, name: str, depth: int) -> Json:
        known: list[_Known] = []
        groups = []
        for _ in range(self._random.randint(1, 4)):
            before = list(known)
            group = []
            for _ in range(self._random.choice((1, 1, 2, 3))):
                if self._budget <= 0 and groups:
                    break
                step: Json = {}
                sure = {each.name for each in before if not each.continues}
                continues = self._chance(0.15)
                of = self._call(step, name, depth, "steps", before, sure, continues=continues)
                if continues:
                    step["continueOn"] = {"failed": True, **({"error": True} if self._chance(0.5) else {})}
                of.free = "when" not in step
                known.append(of)
                group.append(step)
            if group:
                groups.append(group)
        return {"steps": groups, "known": known}

    def _call(
        self,
        task: Json,
        home: str,
        depth: int,
        prefix: str,
        visible: Sequence[_Known],
        sure: set[str],
        *,
        continues: bool,
    ) -> _Known:
        """Complete a task: what it calls, with what, and when."""
        name = task["name"] = self._name()
        readable = list(self._readable(visible, sure, prefix))
        loop = self._loop(task, visible, sure)
        leaf = self._target(depth, self._budget // 3 if loop else self._budget, loop=bool(loop))
        skippable = False
        if self._chance(0.25) and not (loop and prefix == "tasks"):
            task["when"] = self._when(visible, readable, home, loop)
            skippable = True
        identity = self._id(home, name)
        if loop:
            identity += "." + self._random.choice(loop)
            if loop == ["{{item.k}}"]:
                identity = self._id(home, name) + ".{{item.k}}"
        parameters = [{"name": "id", "value": identity}]
        values = [*readable, *loop, "{{workflow.parameters.w0}}", "{{workflow.parameters.w1}}", "text"]
        values += ["{{inputs.parameters.p}}"] if home != "main" else []
        values += [each.tag("status") for each in visible if not each.loop or prefix == "tasks"]
        if isinstance(leaf, str):
            task["template"] = leaf
            if self._chance(0.6):
                parameters.append({"name": "p", "value": self._random.choice(values)})
            outputs = dict(self._groups)[leaf]
            of = _Known(
                name,
                prefix,
                "outputs.parameters.out" if outputs else None,
                bool(loop),
                False,
                skippable,
                False,
                continues,
                None,
            )
        else:
            task["template"] = leaf.name
            declared = next(each for each in self._templates if each["name"] == leaf.name)["inputs"]["parameters"]
            if leaf.has_value and ("value" not in declared[1] or self._chance(0.7)):
                chosen = self._random.sample(values, min(len(values), self._random.choice((1, 1, 2))))
                parameters.append({"name": "v", "value": self._random.choice((" ", "-", "")).join(chosen)})
            output = "outputs.result" if leaf.prints else "outputs.parameters.out"
            robust = leaf.default is not None
            of = _Known(name, prefix, output, bool(loop), leaf.lists, skippable, robust, continues, leaf)
            self._budget -= 3 if loop else 1
        task["arguments"] = {"parameters": parameters}
        if self._chance(0.08):
            self._hook(task, of, home)
        return of

    def _target(self, depth: int, budget: int, *, loop: bool) -> Leaf | str:
        """Return a leaf, or the name of a group."""
        if depth < _MAX_DEPTH and budget > 4 and self._chance(0.25):
            self._count += 1
            name = f"group{self._count}"
            self._budget -= 1
            self._group(name, depth + 1)
            return name
        # Argo only collects results in JSON.
        fitting = [each for each in self._leaves.values() if not (loop and each.prints and not each.lists)]
        return self._random.choice(fitting) if fitting else self._leaves[self._reader()]

    def _readable(self, visible: Sequence[_Known], sure: set[str], prefix: str) -> Iterable[str]:
        """Yield references to outputs that exist whenever the task runs."""
        for each in visible:
            if each.output is None or each.loop:
                continue
            exists = each.name in sure or (each.robust and prefix == "steps")
            by_skip = not each.skippable or (prefix == "tasks" and each.output != "outputs.result")
            if exists and by_skip:
                yield each.tag(each.output)

    def _loop(self, task: Json, visible: Sequence[_Known], sure: set[str]) -> list[str]:
        """Make a task a loop, perhaps; return how to refer to its items."""
        if not self._chance(0.2) or self._budget < 4:
            return []
        kind = self._random.choice(("items", "maps", "numbers", "list", "output", "sequence"))
        if kind == "maps":
            task["withItems"] = [{"k": "x", "n": 1}, {"k": "y", "n": 2}]
            return ["{{item.k}}", "{{item.n}}"]
        if kind == "numbers":
            task["withItems"] = self._random.choice(([1, 2], [3, 1, 2], [5]))
        elif kind == "items":
            task["withItems"] = self._random.choice((["a", "b"], ["x y"], ["1", "2", "c"]))
        elif kind == "sequence":
            task["withSequence"] = self._random.choice(
                (
                    {"count": "2"},
                    {"start": "1", "end": "3"},
                    {"start": "2", "end": "1"},
                    {"count": "2", "format": "n%02d"},
                )
            )
        else:
            lists = [
                each for each in visible if each.lists and each.name in sure and not each.skippable and not each.loop
            ]
            if kind == "output" and lists:
                of = self._random.choice(lists)
                task["withParam"] = of.tag(str(of.output))
            else:
                task["withParam"] = "{{workflow.parameters.list}}"
        return ["{{item}}"]

    def _when(self, visible: Sequence[_Known], readable: Sequence[str], home: str, loop: list[str]) -> str:
        terms = [
            "{{workflow.parameters.w1}} == a",
            "{{workflow.parameters.w1}} != b",
            "'{{workflow.parameters.w0}}' == 'a'",
        ]
        terms += [
            f"{each.tag('status')} {sign} {status}"
            for each in visible
            if not each.loop
            for sign, status in (("==", "Succeeded"), ("!=", "Failed"), ("==", "Skipped"))
        ]
        texts = [each.tag(str(each.output)) for each in visible if each.leaf and not each.lists]
        terms += [
            f"'{each}' {sign} '{value}'"
            for each in readable
            if each in texts
            for sign, value in (("==", "a"), ("!=", "7"))
        ]
        if home != "main":
            terms.append("'{{inputs.parameters.p}}' != 'P'")
        if loop:
            terms += [f"'{each}' != '2'" for each in loop]
        chosen = self._random.sample(terms, min(len(terms), self._random.choice((1, 1, 2))))
        return self._random.choice((" && ", " || ")).join(chosen)

    def _hook(self, task: Json, of: _Known, home: str) -> None:
        value = of.tag("status")
        parameters = [{"name": "id", "value": self._id(home, f"{of.name}-end")}]
        if of.loop:
            return
        parameters.append({"name": "v", "value": value})
        # In a DAG, the failure of a hook counts where a task after it is skipped.
        hook = {"template": self._reader(fails=of.prefix == "steps"), "arguments": {"parameters": parameters}}
        # In a DAG, Argo only runs such a hook if the DAG goes on after the task.
        if self._chance(0.3) and of.prefix == "steps":
            hook["expression"] = f'{of.prefix}["{of.name}"].status == "Succeeded"'
            task["hooks"] = {"done": hook}
        else:
            task["hooks"] = {"exit": hook}

    def _exit(self, spec: Json) -> None:
        """Add an exit handler."""
        status = {"name": "v", "value": "{{workflow.status}}"}
        if self._chance(0.5):
            spec["hooks"] = {
                "exit": {
                    "template": self._reader(),
                    "arguments": {"parameters": [{"name": "id", "value": "exit"}, status]},
                }
            }
            return
        spec["onExit"] = "handler"
        steps = []
        for i, when in enumerate(("{{workflow.status}} == Succeeded", "{{workflow.status}} != Succeeded", "")):
            parameters = [{"name": "id", "value": f"exit{i}"}, status]
            steps.append(
                {
                    "name": f"e{i}",
                    "template": self._reader(),
                    "arguments": {"parameters": parameters},
                    **({"when": when} if when else {}),
                }
            )
        self._templates.append({"name": "handler", "steps": [steps[:2], steps[2:]] if self._chance(0.5) else [steps]})

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    @staticmethod
    def _id(home: str, name: str) -> str:
        return name if home == "main" else "{{inputs.parameters.id}}." + name
