from hera.workflows import DAG, Parameter, RetryStrategy, Suspend, Workflow, script

IMAGE = "registry.example.com/work:1.4"


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=3), active_deadline_seconds=3600)
def build(version):
    import work

    print(work.build(version))


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=3))
def publish(image):
    import work

    print(work.publish(image))


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=3))
def withdraw(image):
    import work

    print(work.withdraw(image))


with Workflow(
    generate_name="release-",
    entrypoint="release",
    arguments={"version": "v7"},
) as release:
    decide = Suspend(
        name="decide",
        duration="24h",
        intermediate_parameters=[Parameter(name="approved", enum=["yes", "no"], default="no")],
    )
    with DAG(name="release"):
        built = build(arguments={"version": "{{workflow.parameters.version}}"})
        decision = decide(name="decide")
        approved = decision.get_parameter("approved")
        yes = publish(arguments={"image": built.result}, when=f"{approved} == yes")
        no = withdraw(arguments={"image": built.result}, when=f"{approved} == no")
        built >> decision >> [yes, no]


if __name__ == "__main__":
    print(release.to_yaml())
