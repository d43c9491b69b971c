import work

import perdure.flow as pf

texts = pf.Environment("texts")


@texts.activity(retries=3)
def list_files(folder: str) -> list[str]:
    return work.list_files(folder)


@texts.activity(retry=pf.Retry(attempts=4, not_for=(ValueError,)))
def count(file: str) -> work.Count:
    return work.count(file)


@texts.activity(retries=3)
def report(counts: list[work.Count], files: list[str]) -> work.Report:
    return work.report(counts, files)


@texts.flow
async def words(folder: str) -> work.Report:
    files = await list_files(folder)
    try:
        counts = await pf.map(count, files, at_most=2, failure_policy="Continue")
    except pf.MapError as error:
        counts = error.results
    return await report(counts, files)
