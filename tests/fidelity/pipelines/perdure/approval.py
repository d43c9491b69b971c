import work

import perdure.flow as pf

releases = pf.Environment("releases")


@releases.activity(timeout="1h", retries=3)
def build(version: str) -> str:
    return work.build(version)


@releases.activity(retries=3)
def publish(image: str) -> str:
    return work.publish(image)


@releases.activity(retries=3)
def withdraw(image: str) -> str:
    return work.withdraw(image)


@releases.flow
async def release(version: str) -> str:
    image = await build(version)
    try:
        approved = await pf.signal("approve", bool, timeout="1d")
    except TimeoutError:
        approved = False
    return await (publish if approved else withdraw)(image)
