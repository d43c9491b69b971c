"""Random DAGs of Airflow: tasks with trigger rules, some of which fail. They follow from a seed."""

from random import Random
from typing import Any, Final

Json = dict[str, Any]
_RULES: Final = (*("all_success",) * 5, *("all_done",) * 3, "none_failed", "one_failed", "one_failed", "always")


def random_dag(seed: int) -> Json:
    """Return a case: the tasks of a DAG with their rules, in topological order, and those that fail."""
    random = Random(f"airflow/{seed}")
    tasks: list[Json] = []
    for i in range(random.randint(3, 8)):
        before = [each["id"] for each in tasks]
        after = random.sample(before, min(len(before), random.choice((0, 1, 1, 2, 3)) if i else 0))
        tasks.append({"id": f"t{i}", "rule": random.choice(_RULES) if after else "all_success", "after": sorted(after)})
    failing = [each["id"] for each in tasks if random.random() < 0.3]
    return {"seed": seed, "tasks": tasks, "failing": failing}
