"""Logging: one JSON object per line, for our own loggers and for kopf's."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


class RetryFilter(logging.Filter):
    """Logs errors that kopf retries as warnings, such as a busy API server. Errors that kopf does not retry stay errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the level of a record, and pass it on."""
        if record.name.startswith("kopf") and record.levelno == logging.ERROR and "will retry" in record.getMessage():
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return True


@contextmanager
def silent() -> Iterator[None]:
    """Silence our own loggers within a block."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def configure(level: str) -> None:
    """Set up logging for the whole process.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``, any case.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RetryFilter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(sort_keys=True),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Audit records, which say who changed what, are written at any level.
    logging.getLogger("perdure.audit").setLevel(logging.INFO)
    # One line for each handler call would hide the rest.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
