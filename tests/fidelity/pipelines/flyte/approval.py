from datetime import timedelta

import flyte
import flyte.errors
import work

env = flyte.TaskEnvironment("releases")


@env.task(retries=3, timeout=3600)
async def build(version: str) -> str:
    return work.build(version)


@env.task(retries=3)
async def publish(image: str) -> str:
    return work.publish(image)


@env.task(retries=3)
async def withdraw(image: str) -> str:
    return work.withdraw(image)


@env.task
async def release(version: str) -> str:
    image = await build(version)
    condition = await flyte.new_condition.aio("approve", timeout=timedelta(days=1))
    try:
        approved = await condition.wait.aio()
    except flyte.errors.ConditionTimedoutError:
        approved = False
    return await (publish if approved else withdraw)(image)
