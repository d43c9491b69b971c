"""Converts DAGs of Airflow."""
