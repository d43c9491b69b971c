"""The DAG of load-2.11.json and load-3.3.json: run it in an environment with Airflow, and it prints its serialized form."""

import json
import sys
from datetime import timedelta

import pendulum
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from kubernetes.client import models as k8s

try:
    from airflow.sdk import DAG, TaskGroup
    from airflow.serialization.serialized_objects import DagSerialization as Serialized
except ImportError:  # Airflow 2
    from airflow import DAG
    from airflow.serialization.serialized_objects import SerializedDAG as Serialized
    from airflow.utils.task_group import TaskGroup

with DAG(
    "load",
    schedule="30 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=4),
    params={"day": "2026-01-01"},
    tags=["etl"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "execution_timeout": timedelta(minutes=20)},
) as dag:
    files = KubernetesPodOperator(
        task_id="files",
        image="etl",
        cmds=["sh", "-c"],
        arguments=['echo "[\\"sales-{{ ds }}.csv\\"]" > /airflow/xcom/return.json'],
        do_xcom_push=True,
        env_vars={"DAY": "{{ params.day }}"},
        container_resources=k8s.V1ResourceRequirements(requests={"cpu": "100m"}),
        volumes=[k8s.V1Volume(name="d", empty_dir=k8s.V1EmptyDirVolumeSource())],
        volume_mounts=[k8s.V1VolumeMount(name="d", mount_path="/d")],
        node_selector={"a": "b"},
    )
    load = KubernetesPodOperator.partial(task_id="load", image="etl").expand(arguments=[["load", "a"], ["load", "b"]])
    with TaskGroup("g") as group:
        KubernetesPodOperator(
            task_id="one",
            image="etl",
            arguments=["{{ ti.xcom_pull(task_ids='files') }}", "{{ run_id }}"],
            trigger_rule="none_failed",
        )
    done = KubernetesPodOperator(
        task_id="done", image="etl", cmds=["sh", "-c"], arguments=["echo done"], trigger_rule="all_done"
    )
    files >> load >> group >> done

if __name__ == "__main__":
    serialized = Serialized.to_dict(dag)
    for name in ("fileloc", "_processor_dags_folder"):
        serialized["dag"].pop(name, None)
    sys.stdout.write(json.dumps(serialized, indent=1) + "\n")
