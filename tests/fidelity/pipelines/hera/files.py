from hera.workflows import DAG, RetryStrategy, Workflow, script
from hera.workflows.models import ContinueOn

IMAGE = "registry.example.com/work:1.4"


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=3))
def list_files(folder):
    import json

    import work

    print(json.dumps(work.list_files(folder)))


@script(image=IMAGE)
def count(file):
    import json

    import work

    print(json.dumps(vars(work.count(file))))


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=3))
def report(counts, files):
    import json

    import work

    print(json.dumps(vars(work.report([work.Count(**each) for each in counts], files))))


with Workflow(
    generate_name="words-",
    entrypoint="words",
    arguments={"folder": "in"},
) as words:
    with DAG(name="words", parallelism=2):
        files = list_files(arguments={"folder": "{{workflow.parameters.folder}}"})
        counts = count(arguments={"file": "{{item}}"}, with_param=files.result, continue_on=ContinueOn(failed=True))
        files >> counts >> report(arguments={"counts": counts.result, "files": files.result})


if __name__ == "__main__":
    print(words.to_yaml())
