import flyte
import work

env = flyte.TaskEnvironment("texts")


@env.task(retries=3)
async def list_files(folder: str) -> list[str]:
    return work.list_files(folder)


@env.task
async def count(file: str) -> work.Count:
    return work.count(file)


@env.task(retries=3)
async def report(counts: list[work.Count], files: list[str]) -> work.Report:
    return work.report(counts, files)


@env.task
async def words(folder: str) -> work.Report:
    files = await list_files(folder)
    counts = [each async for each in flyte.map.aio(count, files, concurrency=2, return_exceptions=True)]
    return await report([each for each in counts if not isinstance(each, Exception)], files)
