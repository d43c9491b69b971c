from hera.workflows import DAG, RetryStrategy, Workflow, script

IMAGE = "registry.example.com/work:1.4"


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=1))
def book(what, trip):
    import work

    print(work.book(what, trip))


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=100))
def cancel(booking):
    import work

    work.cancel(booking)


with Workflow(
    generate_name="trip-",
    entrypoint="plan",
    arguments={"trip": "rome"},
) as plan:
    with DAG(name="plan"):
        trip = "{{workflow.parameters.trip}}"
        flight = book(name="flight", arguments={"what": "flight", "trip": trip})
        hotel = book(name="hotel", arguments={"what": "hotel", "trip": trip}, depends="flight.Succeeded")
        car = book(name="car", arguments={"what": "car", "trip": trip}, depends="hotel.Succeeded")
        cancel(name="cancel-hotel", arguments={"booking": hotel.result}, depends="car.Failed")
        cancel(
            name="cancel-flight",
            arguments={"booking": flight.result},
            depends="hotel.Failed || (car.Failed && cancel-hotel.Succeeded)",
        )


if __name__ == "__main__":
    print(plan.to_yaml())
