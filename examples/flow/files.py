"""Large data in a flow: activities of two images pass files through a bucket, and the history has references to them only.

Needs an S3-compatible bucket: see docs/artifacts.md. To try it without one, run `make store`.

perdure deploy examples/flow/files.py --image localhost/perdure:dev --mount
perdure start --type inventory --task-queue stock --input '{"shops": ["north", "south"]}' --name inventory
perdure result inventory
perdure artifacts get inventory 'count[shop=north]/file-1'
"""

import csv
import json
from dataclasses import dataclass

import perdure.flow as pf

stock = pf.Environment("stock", cpu="10m", memory="64Mi")
reports = pf.Environment("stock-reports", cpu="10m", memory="64Mi")  # give it an image of its own


@dataclass
class Count:
    """What a shop has."""

    shop: str
    rows: int
    items: pf.File


@stock.activity(timeout="5m", retries=3)
def count(shop: str, items: int = 20_000) -> Count:
    """Write an item a line: far more than a result can have."""
    file = pf.File.create(f"{shop}.csv")
    with file.path.open("w", newline="") as out:
        csv.writer(out).writerows((f"{shop}-{number}", number % 7) for number in range(items))
    return Count(shop, items, file)


@reports.activity(timeout="5m", retries=3)
def summarize(counts: list[Count]) -> pf.Folder:
    """Read the files of all shops, and write a report for each."""
    folder = pf.Folder.create("reports")
    for each in counts:
        with each.items.path.open(newline="") as file:
            missing = sum(1 for _, number in csv.reader(file) if number == "0")
        (folder.path / f"{each.shop}.json").write_text(json.dumps({"items": each.rows, "missing": missing}))
    return folder


@reports.activity(timeout="5m", retries=3)
def total(folder: pf.Folder) -> int:
    """Return how many items are missing in all shops."""
    return sum(json.loads(each.read_text())["missing"] for each in sorted(folder.path.iterdir()))


@stock.flow
async def inventory(shops: list[str]) -> int:
    """Count the items of all shops, and return how many are missing."""
    counts = await pf.map(count, shops, at_most=4)
    return await total(await summarize(counts))
