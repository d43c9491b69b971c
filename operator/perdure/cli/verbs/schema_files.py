"""`schemas`: write the JSON Schemas of the kinds."""

from pathlib import Path
from typing import Annotated

import typer

HELP = """Write the JSON Schemas of all kinds, for editors and kubeconform.

Needs no cluster. Each schema is in DIR/perdure.dev/KIND_v1alpha1.json. The
schemas do not check expressions or rules between fields: use `{program} lint`.

\b
Examples:
  {program} schemas schemas
  {program} schemas ~/.config/schemas
"""


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to; created if it does not exist")],
) -> None:
    """Write the JSON Schemas of all kinds."""
    import json

    from perdure.api.crdgen import KINDS
    from perdure.api.schema import json_schema, schema_path
    from perdure.client.errors import CliError

    for kind in KINDS:
        target = folder / schema_path(kind)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(json_schema(kind), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise CliError(f"`{target}` cannot be written: {error.strerror}") from error
        typer.echo(target)
