"""Bugs of earlier versions, each as a change that reintroduces it into the current code, for the simulation to find.

`python -m simulated.bugs` brings back each of them, and prints which seed finds it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

CHECKOUT = Path(__file__).parents[2]
_FAILED = re.compile(r"seed (\d+) of \w+ has failed:\n +(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A piece of a file, replaced."""

    file: str
    """Within ``operator/perdure``."""
    good: str
    """The text that the file contains exactly once."""
    bad: str
    """The text with the bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One bug, and where the simulation finds it."""

    name: str
    commit: str
    """The commit that fixed it."""
    changes: tuple[Change, ...]
    scenario: str
    operators: int = 1
    fleet: bool = False
    """Whether the operators share the work."""
    first_seed: int = 0
    """Where to begin: this seed, or one of the next few, fails with the bug."""
    found: str
    """Part of what the checker reports."""

    def plant(self, directory: Path) -> None:
        """Copy the operator into a directory, with the bug in it.

        Its bytecode is copied, too: it stays valid for the files that do not change.

        Raises:
            ValueError: The file does not contain the expected text exactly once.
        """
        shutil.copytree(CHECKOUT / "operator", directory / "operator")
        for change in self.changes:
            file = directory / "operator" / "perdure" / change.file
            text = file.read_text(encoding="utf-8")
            if text.count(change.good) != 1:
                raise ValueError(f"{change.file} has changed: adapt the bug {self.name!r} to it")
            file.write_text(text.replace(change.good, change.bad), encoding="utf-8")

    def search(self, directory: Path, *, first: int, seeds: int) -> "subprocess.CompletedProcess[str]":
        """Run seeds on the operator in a directory until one fails."""
        arguments = ["--scenario", self.scenario, "--operators", str(self.operators), "--until-failure"]
        arguments += ["--fleet"] * self.fleet
        path = os.pathsep.join([str(directory / "operator"), str(CHECKOUT / "tests")])
        return subprocess.run(
            [sys.executable, "-m", "simulated", *arguments, "--seed", str(first), "--seeds", str(seeds)],
            env={**os.environ, "PYTHONPATH": path},
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )


BUGS = (
    Bug(
        name="pod deleted by the state of a replaced operator",
        commit="3803700",
        changes=(
            Change(
                file="controller/runs/attempts/attempts.py",
                good="            await self._record.confirm(afresh=True)\n",
                bad="            pass\n",
            ),
        ),
        scenario="mixed",
        operators=2,
        first_seed=2,
        found="while its run waits for it",
    ),
    Bug(
        name="child that no watch has shown yet taken for deleted",
        commit="eeb3ffd",
        changes=(
            Change(
                file="controller/runs/effects/relations.py",
                good="            self._context.peers.publish(obj)\n",
                bad="            pass\n",
            ),
        ),
        scenario="families",
        operators=2,
        found="records ChildWorkflowExecutionTerminated",
    ),
    Bug(
        name="parent close policy misses a child that continues as new",
        commit="eeb3ffd",
        changes=(
            Change(
                file="controller/runs/effects/relations.py",
                good="    if any(entry.successor and named(entry.successor) is None for entry in runs):\n        return False\n",
                bad="",
            ),
            Change(
                file="controller/runs/effects/relations.py",
                good="        if answer.reason == inputs.CLOSED:",
                bad="        if False:",
            ),
        ),
        scenario="families",
        first_seed=65,
        found="of ending-terminate is Completed",
    ),
    Bug(
        name="failed start of a child that starts again and has its start event already",
        commit="046d8ea5",
        changes=(Change(file="engine/relations.py", good="child.restarted or item.failure", bad="item.failure"),),
        scenario="mixed_with_code",
        first_seed=470,
        found="that names another start than",
    ),
    Bug(
        name="run decided from the state before a commit that was done",
        commit="bdbb9e1",
        changes=(
            Change(
                file="language/program.py",
                good="    if parsed.is_compensation:\n"
                '        return ""  # no expression reads what a compensation returns\n',
                bad="    assert not parsed.is_compensation\n",
            ),
            Change(
                file="controller/runs/run.py",
                good="        except Exception:  # noqa: BLE001 - recorded events stand, even if they cannot be announced\n"
                '            self._log.exception("Could not record Events for a commit")\n',
                bad="        finally:\n            pass\n",
            ),
            Change(
                file="controller/runs/run.py",
                good="                self.state = None"
                "  # it is already recorded: deciding from the previous state would record it twice\n",
                bad="",
            ),
            Change(
                file="controller/runs/run.py",
                good="                self.state = None"
                "  # uncommitted changes in memory may be the cause: continue from the recorded state\n",
                bad="                pass\n",
            ),
        ),
        scenario="sagas",
        first_seed=1,
        found="of 20 signals",
    ),
    Bug(
        name="write over a status that was not seen",
        commit="3803700",
        changes=(
            Change(
                file="controller/reconcile/record.py",
                good="set_status(self._url, self.latest(), stored)",
                bad="set_status(self._url, await self._client.get(self._url), stored)",
            ),
        ),
        scenario="flows",
        operators=2,
        found="its history was changed",
    ),
    Bug(
        name="open run of a Schedule taken for deleted",
        commit="eeb3ffd",
        changes=(
            Change(
                file="controller/schedules/runs.py",
                good="            chains = await self._listed_chains()\n",
                bad="            pass\n",
            ),
        ),
        scenario="removal",
        operators=2,
        first_seed=5,
        found="which is open",
    ),
    Bug(
        name="pod of a deleted run held for ever",
        commit="3977cfb",
        changes=(
            Change(
                file="controller/dispatch/pods.py",
                good='            self._orphans[self._wake(meta["uid"])] = obj\n',
                bad="            pass\n",
            ),
        ),
        scenario="deletion",
        found="is still held",
    ),
    Bug(
        name="run removed before the run that it continues has recorded its creation",
        commit="0439c42",
        changes=(
            Change(
                file="controller/retention.py",
                good='        yield "workflowruns", before.name, before.run_id\n',
                bad="        pass\n",
            ),
        ),
        scenario="retention",
        operators=3,
        fleet=True,
        first_seed=87,
        found="is created 2 times",
    ),
    Bug(
        name="finished runs that do not follow a change of the retention",
        commit="fe6fe20",
        changes=(
            Change(
                file="controller/manager.py",
                good="            self._expiries.outdate(namespace)\n",
                bad="            pass\n",
            ),
        ),
        scenario="retention",
        found="is not removed",
    ),
    Bug(
        name="finished runs of a namespace without bounds",
        commit="3923056",
        changes=(
            Change(
                file="controller/retention.py",
                good='        deleted = await self._client.delete(url, uid=meta["uid"], version=meta["resourceVersion"])\n',
                bad="        deleted = True\n",
            ),
        ),
        scenario="bounded",
        found="finished runs are left",
    ),
    Bug(
        name="attempt timed out that a lagging watch has not shown to have ended",
        commit="3803700",
        changes=(
            Change(
                file="controller/runs/attempts/attempts.py",
                good="        pod = await self._pods.read_pod(self._run, key)\n",
                bad="        pod = self._held.pods.get(key)\n",
            ),
        ),
        scenario="flows",
        first_seed=135,
        found="is created after an earlier attempt of the activity has succeeded",
    ),
    Bug(
        name="activity whose end is buffered observed once more",
        commit="d664570",
        changes=(
            Change(
                file="engine/state.py",
                good="        ended = self.code.ended_activities() if self.code is not None else ()\n",
                bad="        ended = ()\n",
            ),
            Change(
                file="engine/state.py",
                good="        if self.code is not None and scheduled_event_id in self.code.ended_activities():\n"
                "            return None\n",
                bad="",
            ),
            Change(
                file="engine/activities.py",
                good="        for activity in state.open_activities():\n            if _start_is_unrecorded",
                bad="        ended = state.code.ended_activities() if state.code else ()\n"
                "        for activity in state.activities.values():\n"
                "            if activity.scheduled_event_id in ended:\n"
                "                continue\n"
                "            if _start_is_unrecorded",
            ),
            Change(
                file="engine/activities.py",
                good="        if activity is None or activity.attempt != item.attempt:\n            return None\n",
                bad="        code = self._ledger.state.code\n"
                "        ended = code.ended_activities() if code else ()\n"
                "        if activity is None or activity.attempt != item.attempt or item.scheduled_event_id in ended:\n"
                "            return None\n",
            ),
        ),
        scenario="code",
        found="has ActivityTaskStarted",
    ),
    Bug(
        name="pod deleted that a lagging watch has not shown to have completed",
        commit="00d8148",
        changes=(
            Change(
                file="controller/runs/attempts/held_pods.py",
                good="                self._release(pod, None)\n",
                bad="                self._release(pod, retention_of(pod, succeeded=api_pods.has_succeeded(pod)))\n",
            ),
        ),
        scenario="limits",
        operators=2,
        first_seed=17,
        found="is deleted although its activity has completed",
    ),
    Bug(
        name="place that is reserved for what takes several limits goes to others",
        commit="e5860bfee",
        changes=(
            Change(
                file="runtime/limits.py",
                good="                kept[key] = 1\n",
                bad="                pass\n",
            ),
        ),
        scenario="together",
        found="after it was created",
    ),
    Bug(
        name="one limit is held while another one is full",
        commit="e5860bfee",
        changes=(
            Change(
                file="controller/limits.py",
                good="        if not self._lacking(namespace, group, wall_clock()) and await self._take(namespace, group):\n",
                bad="        if await self._take(namespace, group):\n",
            ),
            Change(
                file="controller/limits.py",
                good="        await self._give_back(namespace, group)\n",
                bad="",
            ),
        ),
        scenario="together",
        first_seed=4,
        found=", not all",
    ),
    Bug(
        name="limit does not select what names another one",
        commit="3c96b8aaa",
        changes=(
            Change(
                file="controller/runs/limits.py",
                good="            if name not in named:\n",
                bad="            if not named:\n",
            ),
        ),
        scenario="selecting_limits",
        first_seed=1,
        found="is taken by",
    ),
    Bug(
        name="activities of workers begin without the limits that select them",
        commit="0afe7810",
        changes=(
            Change(
                file="frontend/core.py",
                good="            if activity.scheduled_event_id not in run.admitted:\n",
                bad="            if False:\n",
            ),
        ),
        scenario="limited_code",
        found="is taken by",
    ),
    Bug(
        name="waiting run that a newer one replaces starts when the limit is released",
        commit="7f6b99888",
        changes=(
            Change(
                file="runtime/limits.py",
                good="not has_room or entry.replaced_by:\n",
                bad="not has_room:\n",
            ),
        ),
        scenario="newest_wins",
        first_seed=11,
        found="but a newer run replaced it",
    ),
    Bug(
        name="closed run reconciled without end",
        commit="b8f3e911",
        changes=(Change(file="controller/runs/attempts/attempts.py", good="(new and not state.closed)", bad="new"),),
        scenario="caching",
        operators=2,
        first_seed=90,
        found="the loop spins",
    ),
    Bug(
        name="strictness off: an older operator drops a field of a newer one, and signs the loss",
        commit="67df5dc",
        changes=(
            Change(
                file="api/stored.py",
                good='rename="camel", forbid_unknown_fields=True',
                bad='rename="camel"',
            ),
            Change(
                file="api/state_versions.py",
                good='return "" if version <= reads else f"',
                bad='return "" if True else f"',
            ),
        ),
        scenario="upgrades",
        operators=3,
        fleet=True,
        first_seed=3,
        found="loses `state.sinceNewer`, which a newer version has written",
    ),
    Bug(
        name="an operator ignores the state version of a status",
        commit="67df5dc",
        changes=(
            Change(
                file="api/state_versions.py",
                good='return "" if version <= reads else f"',
                bad='return "" if True else f"',
            ),
        ),
        scenario="upgrades",
        operators=1,
        found="is changed by an operator that cannot read it",
    ),
    Bug(
        name="a fleet writes a form that not all of its operators read",
        commit="67df5dc",
        changes=(
            Change(
                file="controller/upgrades.py",
                good="return min([self._versions.reads,",
                bad="return max([self._versions.reads,",
            ),
        ),
        scenario="upgrades",
        operators=3,
        fleet=True,
        found="gets state version",
    ),
    Bug(
        name="an upgrade without a hold-back",
        commit="67df5dc",
        changes=(
            Change(file="runtime/upgrades.py", good="until = now + hold_back", bad="until = now + hold_back / 60"),
        ),
        scenario="upgrades",
        operators=3,
        fleet=True,
        found="before the end of the hold-back",
    ),
    Bug(
        name="steps start after a failure although only running ones may finish",
        commit="294b3f29",
        changes=(
            Change(
                file="language/execution/flow.py",
                good="        if flow.failure_policy is FailurePolicy.FINISH_RUNNING and self._will_fail(frame_path, frame):\n"
                "            return\n",
                bad="",
            ),
        ),
        scenario="neighbors",
        first_seed=6,
        found="with FinishRunning",
    ),
    Bug(
        name="a retry inherits the cancellation of a child next to the failure",
        commit="294b3f29",
        changes=(
            Change(
                file="engine/resets.py",
                good="    children = forked.children.keys() - restarted.children.keys()\n",
                bad="    children = forked.children.keys()\n",
            ),
        ),
        scenario="neighbors",
        first_seed=2,
        found="the retry of",
    ),
    Bug(
        name="a retry exceeds the deadline of the run that it repeats",
        commit="294b3f29",
        changes=(
            Change(
                file="engine/fold.py",
                good="    return timer if timer.restarts is None else ",
                bad="    return timer if True else ",
            ),
        ),
        scenario="neighbors",
        found="the retry of",
    ),
    Bug(
        name="a retry runs on a new volume without the files of kept steps",
        commit="efb08754",
        changes=(
            Change(
                file="controller/runs/resets.py",
                good="    needed = needed_files(before, later, kept, use.activities)\n",
                bad="    needed = dict[str, list[str]]()\n",
            ),
            Change(
                file="controller/pods/workspaces.py",
                good="    if paths := await writers(workspace.name):\n",
                bad="    if paths := list[str]():\n",
            ),
        ),
        scenario="workspaces",
        found="runs without the files of",
    ),
    Bug(
        name="a run that waits for a library is not woken by its creation",
        commit="1a0aec094",
        changes=(
            Change(
                file="controller/runs/run.py",
                good="            self._libraries = error.libraries\n",
                bad="            self._libraries = frozenset()\n",
            ),
        ),
        scenario="libraries",
        first_seed=5,
        found="is Pending",
    ),
    Bug(
        name="a run reads its library again after a restart",
        commit="1a0aec094",
        changes=(
            Change(
                file="controller/workflows/definitions.py",
                good="        reference = Reference.of(status)\n",
                bad="        reference = None if inline is not None else Reference.of(status)\n",
            ),
        ),
        scenario="libraries",
        found="",
    ),
    Bug(
        name="exit code 0 after SIGTERM taken for success",
        commit="365ddbf3",
        changes=(
            Change(
                file="runtime/attempt_outcomes.py",
                good="        if not self.succeeded() or self.stopping or self.left_result():\n            return False\n",
                bad="        return False\n",
            ),
        ),
        scenario="mixed",
        first_seed=3,
        found="whose pod was stopped and left no result",
    ),
    Bug(
        name="a retry starts while the container of the previous attempt runs",
        commit="2185fed3",
        changes=(
            Change(
                file="controller/runs/attempts/admission.py",
                good="        if pod is not None and may_run(pod, now, trusts_node=exclusive):\n",
                bad="        if False:\n",
            ),
        ),
        scenario="replacements",
        found="is created while the container of attempt",
    ),
    Bug(
        name="a finished run is removed although only an earlier version of it is archived",
        commit="6119d2cd",
        changes=(
            Change(
                file="controller/archiver.py",
                good="        if self._stored.get(uid) == version:\n            return True\n",
                bad="        if uid in self._stored:\n            return True\n",
            ),
        ),
        scenario="archive",
        found="is removed in version",
    ),
    Bug(
        name="children are deleted with their parent before they are archived",
        commit="6119d2cd",
        changes=(
            Change(
                file="controller/archiver.py",
                good='            not _may_have_children(run) or await self._has_children_of(run["metadata"])\n',
                bad="            True\n",
            ),
        ),
        scenario="archive",
        operators=2,
        first_seed=13,
        found="the archive has none",
    ),
    Bug(
        name="a finished run counts as archived before the archive has answered",
        commit="6119d2cd",
        changes=(
            Change(
                file="controller/archiver.py",
                good="        try:\n            await self.archive.store(rows)\n",
                bad=(
                    "        self._stored |= {each.record.run_id: each.record.version for each in rows}\n"
                    "        try:\n            await self.archive.store(rows)\n"
                ),
            ),
        ),
        scenario="archive",
        found="is removed in version",
    ),
    Bug(
        name="a revision is deleted while a run is about to refer to it",
        commit="c4bc0573",
        changes=(
            Change(
                file="controller/workflows/revisions.py",
                good="if await self._is_needed(namespace, name, workflow) or await self._is_of_version(namespace, name):",
                bad="if await self._is_of_version(namespace, name):",
            ),
        ),
        scenario="revisions",
        first_seed=21,
        found="is deleted while the run",
    ),
    Bug(
        name="a lost node lets two containers run under a limit of one",
        commit="2185fed3",
        changes=(
            Change(
                file="controller/runs/attempts/definitions.py",
                good="        return self._run_limited or by_step or bool(self.of(activity).limits)\n",
                bad="        return self._run_limited or by_step\n",
            ),
        ),
        scenario="replacements",
        found="is created while the container of attempt",
    ),
    Bug(
        name="a run reads the defaults of its namespace again when another operator resumes it",
        commit="7286079c",
        changes=(
            Change(
                file="controller/workflows/definitions.py",
                good="            content = await self.revisions.read(namespace, reference)\n",
                bad="            content = await self.revisions.read(namespace, reference)\n"
                "            if content.written is not None:\n"
                "                again = await self.complete(namespace, content.written, await self.defaults(namespace))\n"
                "                content = content_of(workflow, content.written, again)\n",
            ),
        ),
        scenario="defaults",
        found="of several versions of the defaults",
    ),
    Bug(
        name="steps start when the pod of their service exists, not when it is ready",
        commit="383269d4",
        changes=(
            Change(
                file="controller/runs/attempts/attempts.py",
                good="        if pod is not None and is_ready(pod) and StartAttempt(",
                bad="        if pod is not None and StartAttempt(",
            ),
        ),
        scenario="services",
        found="is ready",
    ),
    Bug(
        name="a service runs on when its steps have ended",
        commit="383269d4",
        changes=(
            Change(
                file="language/execution/services.py",
                good="        context.commands.append(cmd.RequestCancelActivityTask("
                "activity_id=path.run_service(service.name).text))\n",
                bad="",
            ),
        ),
        scenario="services",
        found="outlives its steps",
    ),
    Bug(
        name="a timer that was due while no operator ran is forgotten, because its run hibernates",
        commit="7f9f28b8",
        changes=(
            Change(
                file="controller/dispatch/hibernation.py",
                good="        wake = next_wake(state, _LONG_AGO)\n",
                bad="        wake = next_wake(state, now)\n",
            ),
            Change(
                file="controller/dispatch/hibernation.py",
                good="        self._queue.wake_at(key, next_wake(state, _LONG_AGO))\n",
                bad="        self._queue.wake_at(key, next_wake(state, wall_clock()))\n",
            ),
        ),
        scenario="hibernation",
        found="unfinished",
    ),
    Bug(
        name="no run hibernates",
        commit="7f9f28b8",
        changes=(
            Change(
                file="controller/dispatch/hibernation.py",
                good="        if not self._only_waits(run, wake, now):\n",
                bad="        if True:\n",
            ),
        ),
        scenario="hibernation",
        found="in memory, which waits",
    ),
    Bug(
        name="an event that kopf handles late hides a later version of a closed run",
        commit="7bd85f93",
        changes=(
            Change(
                file="controller/dispatch/index.py",
                good='self.version(meta["uid"]) or ""',
                bad='self._versions.get(meta["uid"], "")',
            ),
        ),
        scenario="mixed",
        operators=3,
        fleet=True,
        found="whose watch never failed",
    ),
    Bug(
        name="an attempt starts long after its rate has permitted it",
        commit="this rate is new",
        changes=(
            Change(
                file="runtime/limits.py",
                good=" and now < entry.permitted + START_WITHIN",
                bad="",
            ),
        ),
        scenario="attempt_rates",
        operators=3,
        fleet=True,
        found="pods of call since",
    ),
)


def main() -> int:
    """Print a table of all bugs and the seeds that find them; how many bugs no seed has found."""
    parser = argparse.ArgumentParser(
        prog="simulated.bugs", description="Bring back bugs of earlier versions, and find them."
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many seeds a bug may hide from")
    options = parser.parse_args()
    missed = 0
    print("| bug | fixed in | scenario | operators | seed | seeds needed | what the checker reports |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for bug in BUGS:
        with TemporaryDirectory() as directory:
            bug.plant(Path(directory))
            output = bug.search(Path(directory), first=options.seed, seeds=options.seeds).stdout
        failed = _FAILED.search(output)
        missed += failed is None
        seed, report = (int(failed[1]), failed[2]) if failed else (None, "")
        needed = "not found" if seed is None else seed - options.seed + 1
        place = f"{bug.scenario} | {bug.operators}"
        print(f"| {bug.name} | {bug.commit} | {place} | {seed} | {needed} | {report} |", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
