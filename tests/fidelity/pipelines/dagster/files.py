import dagster as dg
import work


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3), out={"files": dg.Out(list[str]), "each": dg.DynamicOut(str)})
def list_files(folder: str):
    files = work.list_files(folder)
    yield dg.Output(files, "files")
    for number, file in enumerate(files):
        yield dg.DynamicOutput(file, mapping_key=str(number), output_name="each")


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3))
def count(file: str) -> work.Count | None:
    try:
        return work.count(file)
    except ValueError:
        return None


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3))
def report(counts: list[work.Count | None], files: list[str]) -> work.Report:
    return work.report([each for each in counts if each], files)


@dg.graph
def words(folder: str):
    files, each = list_files(folder)
    return report(each.map(count).collect(), files)


job = words.to_job(executor_def=dg.multiprocess_executor.configured({"max_concurrent": 2}))
definitions = dg.Definitions(jobs=[job])
