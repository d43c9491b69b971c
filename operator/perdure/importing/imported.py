"""The result of a conversion."""

from dataclasses import dataclass, field

from perdure.importing.field_reader import ConversionReport, Object


@dataclass(slots=True)
class Imported:
    """One foreign object, converted."""

    source: str
    """Kind and name of the original."""
    manifests: list[Object] = field(default_factory=list)
    report: ConversionReport = field(default_factory=ConversionReport)
    cron: Object | None = None
    """A CronWorkflow that references the Workflow among the manifests, which remains to be converted."""


def name_of(document: Object) -> str:
    """Return kind and name of an object."""
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    return f"{document.get('kind')}/{given.get('name') or given.get('generateName')}"
