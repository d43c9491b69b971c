import json
from pathlib import Path

import pytest

from support.cli import perdure

MANIFEST = """
apiVersion: perdure.dev/v1alpha1
kind: Schedule
metadata: {name: nightly, namespace: shop}
spec:
  cron: ["30 2 * * *"]
  timeZone: Europe/Berlin
  endTime: 2026-10-26T12:00:00Z
  workflowRunTemplate: {spec: {workflow: {name: report}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "nightly.yaml"
    path.write_text(MANIFEST)
    return str(path)


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = perdure("schedule", "next", *arguments, stdin=stdin)
    return result.exit_code, result.stdout, result.stderr


def test_next_prints_pairs_as_json(file: str) -> None:
    code, out, _ = run("-f", file, "--after", "2026-03-28", "--count", "2", "-o", "json")
    assert code == 0
    assert json.loads(out) == [
        {"nominal": "2026-03-28T01:30:00Z", "actual": "2026-03-28T01:30:00Z"},
        {"nominal": "2026-03-29T01:00:00Z", "actual": "2026-03-29T01:00:00Z", "note": "02:30:00 does not exist"},
    ]


def test_next_prints_a_table_with_the_local_time(file: str) -> None:
    code, out, _ = run("--file", file, "--after", "2026-10-25T00:00:00+02:00")
    assert code == 0
    assert out.splitlines() == [
        "NOMINAL               ACTUAL                EUROPE/BERLIN                  NOTE",
        "2026-10-25T00:30:00Z  2026-10-25T00:30:00Z  Sun 2026-10-25 02:30:00 +0200  first occurrence",
        "2026-10-26T01:30:00Z  2026-10-26T01:30:00Z  Mon 2026-10-26 02:30:00 +0100",
    ]


def test_next_notes_the_days_on_which_clocks_change() -> None:
    both = MANIFEST.replace("endTime: 2026-10-26T12:00:00Z", "daylightSaving: {repeated: Both}")
    _, out, _ = run("-f", "-", "--after", "2026-03-28", "--count", "3", stdin=both)
    assert [line.partition("+")[2] for line in out.splitlines()[1:]] == [
        "0100",
        "0200  02:30:00 does not exist",
        "0200",
    ]
    _, out, _ = run("-f", "-", "--after", "2026-10-25", "--count", "3", stdin=both)
    assert [line.split("  ")[-1] for line in out.splitlines()] == [
        "NOTE",
        "first occurrence",
        "second occurrence",
        "Mon 2026-10-26 02:30:00 +0100",
    ]
    manifest = both.replace('["30 2 * * *"]', '["30 2 * * *", "0 3 * * *"]')
    assert "does not exist" not in run("-f", "-", "--after", "2026-03-29", "--count", "1", stdin=manifest)[1]


def test_next_notes_that_a_schedule_is_paused(file: str) -> None:
    paused = MANIFEST.replace("spec:", "spec:\n  paused: true", 1)
    code, out, error = run("-f", "-", "--after", "2026-06-10", "--count", "1", "-o", "json", stdin=paused)
    assert (code, len(json.loads(out))) == (0, 1)
    assert error == "The schedule is paused: no runs start at these times until it is unpaused.\n"
    assert run("-f", file, "--after", "2026-06-10", "--count", "1")[2] == ""


def test_a_date_without_an_offset_is_in_the_zone_of_the_schedule(file: str) -> None:
    def first(after: str) -> str:
        return str(json.loads(run("-f", file, "--after", after, "--count", "1", "-o", "json")[1])[0]["nominal"])

    assert first("2026-06-10T02:30:00") == "2026-06-11T00:30:00Z"
    assert first("2026-06-10T02:29:59") == first("2026-06-10") == "2026-06-10T00:30:00Z"
    assert first("2026-06-10T00:30:00Z") == "2026-06-11T00:30:00Z"


def test_next_after_the_end_is_an_empty_list(file: str) -> None:
    assert run("-f", file, "--after", "2027-01-01", "-o", "json")[:2] == (1, "[]\n")
    code, _, error = run("-f", file, "--after", "2027-01-01")
    assert (code, error) == (1, "No time is left until `endTime`, 2026-10-26T12:00:00Z.\n")


@pytest.mark.parametrize(
    ("cron", "want"),
    [('["0 0 30 2 *"]', "No time matches within the next 40 years"), ("[]", "when an Operation triggers them")],
)
def test_next_without_times_shows_the_reason(cron: str, want: str) -> None:
    manifest = MANIFEST.replace('["30 2 * * *"]', cron).replace("  endTime: 2026-10-26T12:00:00Z\n", "")
    code, out, error = run("-f", "-", stdin=manifest)
    assert (code, out) == (1, "")
    assert want in error


def test_jitter_of_a_file_depends_on_its_namespace() -> None:
    def actual(namespace: str) -> list[str]:
        manifest = MANIFEST.replace(", namespace: shop", "").replace("  timeZone", "  jitter: 1h\n  timeZone")
        _, out, _ = run("-f", "-", "--after", "2026-01-01", "-o", "json", "-n", namespace, stdin=manifest)
        return [each["actual"] for each in json.loads(out)]

    assert actual("a") != actual("b")
    assert actual("a") == actual("a")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (("30 2 * * *", "30 25 * * *"), "spec.cron[0]: `30 25 * * *`: `hour` is `25`"),
        (("Europe/Berlin", "Europe/Bärlin"), "spec.timeZone: must match"),
        (("Europe/Berlin", "Europe/Berlim"), "did you mean `Europe/Berlin`"),
        (("kind: Schedule", "kind: Sched"), "has no Schedule"),
        (("cron:", "crom:"), "spec.crom: unknown field"),
        (("metadata", "---\nmetadata"), "has no Schedule|spec: must be set"),
    ],
)
def test_next_reports_errors_of_a_file(change: tuple[str, str], want: str) -> None:
    code, _, error = run("-f", "-", stdin=MANIFEST.replace(*change))
    assert code == 2
    assert any(part in error for part in want.split("|")), error


def test_one_of_several_schedules_must_be_named() -> None:
    both = MANIFEST + "---" + MANIFEST.replace("nightly", "weekly")
    assert "set NAME to one of them" in run("-f", "-", stdin=both)[2]
    assert run("weekly", "-f", "-", "--after", "2026-01-01", stdin=both)[0] == 0


def test_next_without_arguments_names_the_required_options() -> None:
    code, _, error = run()
    assert code == 2
    assert "--file" in error


@pytest.mark.parametrize("after", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31"])
def test_next_rejects_times_before_the_supported_range(file: str, after: str) -> None:
    code, _, reported = run("-f", file, "--after", after)
    assert code == 2
    assert f"`{after}`" in reported
