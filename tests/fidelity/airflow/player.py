"""Runs DAGs on Airflow's own scheduling code, in a Python environment with Airflow: `python player.py CASES RECORDS`.

Each line of the first file is a case: the tasks of a DAG with their upstream tasks and trigger rules, and those that fail. Each
line of the other one is a record: the DAG as Airflow serializes it, with KubernetesPodOperators, and how it went: the states of
its tasks and of its run. It went with tasks in Python, which run here, one after the other (`dag.test`).
"""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization


def end(*, fails: bool) -> None:
    """End as a task of the case does."""
    if fails:
        raise RuntimeError("as the case says")


def built(case: dict[str, Any], *, pods: bool) -> DAG:
    """Return the DAG of a case."""
    with DAG(f"case-{case['seed']}", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        tasks = {}
        for each in case["tasks"]:
            name, rule = each["id"], each["rule"]
            tasks[name] = (
                KubernetesPodOperator(
                    task_id=name,
                    trigger_rule=rule,
                    image="busybox",
                    cmds=["work"],
                    arguments=[name],
                    do_xcom_push=False,
                )
                if pods
                else PythonOperator(
                    task_id=name, trigger_rule=rule, python_callable=end, op_kwargs={"fails": name in case["failing"]}
                )
            )
        for each in case["tasks"]:
            for other in each["after"]:
                tasks[other] >> tasks[each["id"]]
    return dag


_FILE = """import json, sys
sys.path.insert(0, {folder!r})
from player import built
dag = built(json.loads({case!r}), pods=False)
"""
"""The file of the only DAG that Airflow finds."""


def main(cases: Path, records: Path) -> None:
    """Play all cases of a file."""
    dags = Path(os.environ["AIRFLOW_HOME"], "dags")
    dags.mkdir(parents=True, exist_ok=True)
    with records.open("w", encoding="utf-8") as written:
        for line in cases.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            (dags / "case.py").write_text(_FILE.format(folder=str(Path(__file__).parent), case=line), encoding="utf-8")
            run = built(case, pods=False).test()
            states = {each.task_id: str(each.state) for each in run.get_task_instances()}
            dag = DagSerialization.to_dict(built(case, pods=True))
            record = {"seed": case["seed"], "state": str(run.state), "states": dict(sorted(states.items())), "dag": dag}
            written.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
