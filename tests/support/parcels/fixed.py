"""The second version: it makes the same decisions, and asks no clock."""

import perdure.flow as pf

parcels = pf.Environment("parcels")


@parcels.activity()
def pack(order: str) -> str:
    return f"{order} packed again"


@parcels.activity()
def ship(parcel: str) -> str:
    return f"{parcel}, shipped by the second version"


@parcels.flow
async def parcel(order: str) -> str:
    packed = await pack(order)
    if "slowly" in order:
        await pf.signal("go")
    return await ship(packed)
