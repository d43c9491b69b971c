"""The metrics page, from the registry of the operator."""

from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from perdure.observe import metrics
from reference.markdown import page, table

_HEAD: Final = """\
The operator serves these metrics at `/metrics` on port 8080. [Monitoring](../monitoring.md) shows how to scrape them
and which ones to alert on.

All values count from the start of the operator. Counters also have a `…_created` series; histograms have `_bucket`,
`_sum`, and `_count`. The process metrics (`process_…`) report CPU seconds, memory, and open files of the operator."""


def pages() -> dict[str, str]:
    """Write the page."""
    rows = [
        (f"`{name}`", str(metric._type), _labels(metric), metric._documentation)  # noqa: SLF001 - the library has no public accessor
        for metric in vars(metrics).values()
        if isinstance(metric, MetricWrapperBase)
        for name in [f"{metric._name}_total" if metric._type == "counter" else metric._name]  # noqa: SLF001
    ]
    return {
        "metrics.md": page(
            "Metrics",
            "operator/perdure/observe/metrics.py",
            _HEAD,
            table(("metric", "type", "labels", "meaning"), sorted(rows)),
        )
    }


def _labels(metric: MetricWrapperBase) -> str:
    return ", ".join(f"`{name}`" for name in metric._labelnames)  # noqa: SLF001
