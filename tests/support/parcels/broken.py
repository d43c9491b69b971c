"""The first version: it asks the clock after its first activity, which the sandbox of a worker refuses."""

import time

import perdure.flow as pf

parcels = pf.Environment("parcels")


@parcels.activity()
def pack(order: str) -> str:
    if order.endswith("refused"):
        raise ValueError("refused by the first version")
    return f"{order} packed"


@parcels.activity()
def ship(parcel: str) -> str:
    return f"{parcel}, shipped"


@parcels.flow
async def parcel(order: str) -> str:
    packed = await pack(order)
    if order.endswith("late"):
        raise ValueError("too late")
    if "slowly" in order:
        await pf.signal("go")
        return await ship(packed)
    if time.time() < 0:  # noqa: TID251 - this is the mistake
        return packed
    return await ship(packed)
