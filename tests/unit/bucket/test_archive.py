"""The archive as files: keys, versions, deletions, months, and lists. One test runs against a real S3 server."""

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.api.phases import RunKind
from perdure.archive.records import RunRecord
from perdure.archive.rows import ArchiveUnavailableError
from perdure.bucket.archive import Bucket, BucketArchive
from perdure.bucket.objects import S3Bucket
from support.archived_runs import BEGIN, NAMESPACE, finished, ref, row
from support.artifacts.gateway import Gateway, serving
from support.memory_bucket import MemoryBucket
from support.ports import free_port

KIND = RunKind.WORKFLOW
MONTH = "2026-03"


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def archive(bucket: MemoryBucket) -> BucketArchive:
    return BucketArchive(bucket, timedelta(0))


def everything(_: RunRecord) -> bool:
    return True


async def names(archive: BucketArchive, month: str = MONTH, **options: Any) -> list[str]:
    page = await archive.month_page(NAMESPACE, month, everything, **{"token": "", "limit": 100, **options})
    return [run["metadata"]["name"] for run in page.runs]


async def test_a_stored_run_is_found_as_it_was(archive: BucketArchive, bucket: MemoryBucket) -> None:
    run = finished("one", attributes={"Paid": {"type": "Bool", "value": True}})
    stored = row(run)
    await archive.store([stored])
    key = f"archive.v1/{NAMESPACE}/{MONTH}/runs/one/uid-one/20260301T120100Z-5-10.json.gz"
    assert list(bucket.objects) == [key]
    for found in (
        await archive.find(NAMESPACE, KIND, "one", "uid-one"),
        await archive.find(NAMESPACE, KIND, "one", ""),
        await archive.named(NAMESPACE, "one"),
    ):
        assert found is not None
        assert found["spec"] == run["spec"]
        assert found["status"]["history"]["events"] == run["status"]["history"]["events"]
    assert await archive.versions([ref("one")]) == {"uid-one": "10"}
    outline, whole = gzip.decompress(bucket.objects[key]).splitlines()
    assert json.loads(outline)["status"]["phase"] == "Completed"
    assert json.loads(whole)["metadata"]["name"] == "one"


async def test_what_does_not_exist_is_not_found(archive: BucketArchive) -> None:
    await archive.store([row(finished("one"))])
    assert await archive.find(NAMESPACE, KIND, "two", "") is None
    assert await archive.find(NAMESPACE, KIND, "one", "uid-two") is None
    assert await archive.find(NAMESPACE, RunKind.ACTIVITY, "one", "") is None
    assert await archive.find("other", KIND, "one", "") is None
    assert await archive.named(NAMESPACE, "on") is None
    assert await archive.named(NAMESPACE, "../runs/one") is None


async def test_storing_a_run_again_changes_nothing(archive: BucketArchive, bucket: MemoryBucket) -> None:
    await archive.store([row(finished("one"))])
    before = dict(bucket.objects)
    await archive.store([row(finished("one")), row(finished("one"))])
    assert bucket.objects == before


async def test_the_last_version_counts_in_whatever_order_they_arrive(archive: BucketArchive) -> None:
    versions = [(6, "99", "Failed"), (6, "100", "Failed"), (5, "98", "Completed")]
    rows = [row(finished("one", commit=commit, version=version, status=s)) for commit, version, s in versions]
    for each in rows:
        await archive.store([each])
    assert await archive.versions([ref("one")]) == {"uid-one": "100"}
    found = await archive.named(NAMESPACE, "one")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "100"
    assert await names(archive) == ["one"]


async def test_the_newest_run_of_a_workflow_id_is_found(archive: BucketArchive) -> None:
    runs = [finished(name, begin=BEGIN + timedelta(days=40 * n)) for n, name in enumerate(("b", "a", "c"))]
    for run in runs:
        run["spec"]["workflowId"] = "Same/é"
    runs[2]["spec"]["workflowId"] = "a"  # the name of another run
    await archive.store(list(map(row, runs)))
    found = await archive.find(NAMESPACE, KIND, "Same/é", "")
    assert found is not None
    assert found["metadata"]["name"] == "a"
    first = await archive.find(NAMESPACE, KIND, "Same/é", "uid-b")
    assert first is not None
    assert first["metadata"]["name"] == "b"
    other = await archive.find(NAMESPACE, KIND, "a", "")
    assert other is not None
    assert other["metadata"]["name"] == "c"


async def test_a_deleted_run_does_not_come_back(archive: BucketArchive, bucket: MemoryBucket) -> None:
    stored = row(finished("one"))
    await archive.store([stored, row(finished("two"))])
    await archive.delete(ref("one"))
    assert await archive.named(NAMESPACE, "one") is None
    await archive.store([stored])  # by an operator that has read it before
    assert not any("/runs/one/" in key for key in bucket.objects)
    assert await names(archive) == ["two"]


async def test_a_file_that_a_killed_operator_wrote_after_the_deletion_is_hidden_and_deleted(
    archive: BucketArchive, bucket: MemoryBucket
) -> None:
    stored = row(finished("one"))
    await archive.store([stored])
    late = dict(bucket.objects)
    await archive.delete(ref("one"))
    for key, content in late.items():
        await bucket.put(key, content)
    assert await archive.named(NAMESPACE, "one") is None
    assert await archive.find(NAMESPACE, KIND, "one", "uid-one") is None
    assert await names(archive) == []
    await archive.maintain(max(bucket.times.values()) + timedelta(hours=1))
    assert bucket.objects.keys() > late.keys()
    await archive.maintain(max(bucket.times.values()) + timedelta(days=2))
    assert bucket.objects == {}


async def test_months_are_listed_by_name_in_pages(archive: BucketArchive) -> None:
    await archive.store([row(finished(f"r{n:02}")) for n in range(25)])
    await archive.store([row(finished("r03", commit=6, version="11"))])
    await archive.store([row(finished("april", begin=datetime(2026, 4, 1, tzinfo=UTC)))])
    found: list[str] = []
    token = ""
    while True:
        page = await archive.month_page(NAMESPACE, MONTH, everything, token=token, limit=10)
        found += [run["metadata"]["name"] for run in page.runs]
        token = page.token
        if not token:
            break
    assert found == [f"r{n:02}" for n in range(25)]
    newest = await archive.month_page(NAMESPACE, "", everything, token="", limit=10)
    assert (newest.month, [run["metadata"]["name"] for run in newest.runs]) == ("2026-04", ["april"])
    assert await archive.month_page("other", "", everything, token="", limit=10) == ("", [], "")


async def test_lists_show_outlines_of_the_workflows_that_are_selected(archive: BucketArchive) -> None:
    long = {"Note": {"type": "Text", "value": "".join(chr(0x4E00 + n) for n in range(8_000))}}  # does not compress well
    await archive.store([row(finished("bad", status="Failed", attributes=long)), row(finished("good"))])
    page = await archive.month_page(
        NAMESPACE, MONTH, lambda record: record.field("ExecutionStatus") == "Failed", token="", limit=10
    )
    (run,) = page.runs
    assert (run["metadata"]["uid"], run["status"]["phase"]) == ("uid-bad", "Failed")
    assert run["spec"] == {"workflowId": "bad", "workflow": {"type": "Order"}, "searchAttributes": long}


async def test_what_others_have_put_into_the_folder_is_left_alone(archive: BucketArchive, bucket: MemoryBucket) -> None:
    await archive.store([row(finished("one"))])
    (key,) = bucket.objects
    folder = key.rpartition("/")[0]
    runs = f"archive.v1/{NAMESPACE}/{MONTH}/runs"
    others = [key.removesuffix(".gz"), f"{folder}/", f"{folder}/notes.txt", f"{runs}/", f"{runs}/one/read-me"]
    others += [f"archive.v1/{NAMESPACE}/2001-copies/x", f"archive.v1/{NAMESPACE}/tmp/runs/one/uid-one/1-2-3.json.gz"]
    for each in others:
        await bucket.put(each, b"other")
    assert await archive.versions([ref("one")]) == {"uid-one": "10"}
    assert await archive.named(NAMESPACE, "one") is not None
    assert await archive.find(NAMESPACE, KIND, "one", "uid-one") is not None
    assert await names(archive) == await names(archive, month="") == ["one"]
    await BucketArchive(bucket, timedelta(days=1)).maintain(datetime(2030, 1, 1, tzinfo=UTC))
    assert sorted(bucket.objects) == sorted(each for each in others if MONTH not in each)


async def test_retention_deletes_whole_months(bucket: MemoryBucket) -> None:
    archive = BucketArchive(bucket, timedelta(days=60))
    months = [datetime(2025, month, 28, tzinfo=UTC) for month in (9, 10, 11, 12)]
    runs = [finished(f"m{time.month}", begin=time) for time in months]
    for run in runs:
        run["spec"]["workflowId"] = "same"
    await archive.store(list(map(row, runs)))
    await archive.maintain(datetime(2026, 1, 5, tzinfo=UTC))
    assert {key.split("/")[2] for key in bucket.objects} == {"2025-11", "2025-12"}


async def test_nothing_counts_as_stored_while_the_bucket_does_not_respond(
    archive: BucketArchive, bucket: MemoryBucket
) -> None:
    bucket.is_down = True
    with pytest.raises(ArchiveUnavailableError):
        await archive.store([row(finished("one"))])
    with pytest.raises(ArchiveUnavailableError):
        await archive.versions([])


# --- A real server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("store"), free_port()) as running:
        yield running


async def test_a_bucket_on_a_server_behaves_like_the_one_in_memory(gateway: Gateway, bucket: MemoryBucket) -> None:
    real: Bucket = S3Bucket(gateway.environ)
    for each in (bucket, real):
        for n in range(5):
            await each.put(f"archive.v1/a/{n}/x", b"content")
        await each.put("archive.v1/ab/1", b"")
    results = [
        (
            [found.key async for found in each.each("archive.v1/a", after="archive.v1/a/2/x")],
            [found.key async for found in each.each("archive.v1/nothing")],
            sorted(await each.folders("archive.v1")),
            await each.get("archive.v1/a/1/x"),
            await each.get("archive.v1/a/1/x", 4),
            await each.get("archive.v1/missing"),
        )
        for each in (bucket, real)
    ]
    assert results[0] == results[1]
    await real.delete(["archive.v1/a/1/x", "archive.v1/missing"])
    assert await real.get("archive.v1/a/1/x") is None
    archive = BucketArchive(real, timedelta(0))
    await archive.store([row(finished(f"r{n:02}")) for n in range(40)])
    assert await names(archive) == [f"r{n:02}" for n in range(40)]
    assert await archive.named(NAMESPACE, "r07") is not None


async def test_errors_of_the_store_say_what_is_wrong(gateway: Gateway) -> None:
    wrong = S3Bucket({**gateway.environ, "PERDURE_STORE_BUCKET": "missing"})
    with pytest.raises(ArchiveUnavailableError, match="NoSuchBucket"):
        await wrong.put("a", b"")
    with pytest.raises(ArchiveUnavailableError, match="NoSuchBucket"):
        await wrong.get("a")
    with pytest.raises(ArchiveUnavailableError, match="NoSuchBucket"):
        await wrong.folders("a")
    unreachable = {**gateway.environ, "PERDURE_STORE_ENDPOINT": "not a URL"}
    with pytest.raises(ArchiveUnavailableError, match="the settings of the archive are not valid: the endpoint must"):
        S3Bucket(unreachable)
