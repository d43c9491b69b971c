"""The software bill of materials: what the artifacts contain, as an SPDX 2.3 document."""

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from release import licenses, packages
from release.files import sha256
from release.image import PlatformImage
from release.source import Source

Json = dict[str, object]

_NOTHING = "NOASSERTION"


def write(source: Source, images: Sequence[PlatformImage], artifacts: Sequence[Path], target: Path) -> list[Path]:
    """Write the bill of materials and the list of licenses.

    Raises:
        ClusterError: A dependency has a license that is not allowed.
    """
    found = {
        name: (str(metadata["Version"]), licenses.license_of(metadata))
        for image in images
        for name, metadata in packages.metadata(image.site).items()
    }
    licenses.check({name: license_name for name, (_, license_name) in found.items()})
    debs = sorted({(deb.name, deb.version, deb.licenses) for image in images for deb in image.debs})
    listed = target / "LICENSES.txt"
    listed.write_text(licenses.listing(found, debs), encoding="utf-8")
    file = target / f"perdure-{source.version}.spdx.json"
    file.write_text(json.dumps(_document(source, images, artifacts, found), indent=1) + "\n", encoding="utf-8")
    return [file, listed]


def _document(
    source: Source, images: Sequence[PlatformImage], artifacts: Sequence[Path], found: dict[str, tuple[str, str]]
) -> Json:
    entries: list[Json] = [_package("release", "perdure", source.version, license_name="Apache-2.0")]
    related = [_related("DOCUMENT", "DESCRIBES", "release")]
    for number, file in enumerate(artifacts):
        entries.append(_package(f"artifact-{number}", file.name, source.version, digest=sha256(file)))
        related.append(_related("release", "GENERATES", f"artifact-{number}"))
    for image in images:
        name = f"image-{image.platform.architecture}"
        entries.append(_package(name, f"image for linux/{image.platform.architecture}", source.version))
        related.append(_related("release", "GENERATES", name))
        for wheel in image.wheels:
            key = f"{name}-python-{wheel.name}"
            reference = f"pkg:pypi/{wheel.name}@{quote(wheel.version)}"
            entries.append(
                _package(
                    *(key, wheel.name, wheel.version, reference),
                    digest=wheel.sha256,
                    license_name=found[wheel.name][1],
                    file=wheel.file,
                )
            )
            related.append(_related(name, "CONTAINS", key))
        for deb in image.debs:
            key = f"{name}-debian-{deb.name}".replace("+", ".")
            reference = f"pkg:deb/debian/{quote(deb.name)}@{quote(deb.version)}?arch={deb.architecture}"
            entries.append(
                _package(
                    *(key, deb.name, deb.version, reference),
                    digest=deb.sha256,
                    file=f"{deb.name}_{deb.version}_{deb.architecture}.deb",
                )
            )
            related.append(_related(name, "CONTAINS", key))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"perdure-{source.version}",
        "documentNamespace": f"https://perdure.dev/spdx/{source.version}/{source.commit}",
        "creationInfo": {
            "created": packages.timestamp(source.epoch),
            "creators": [f"Tool: perdure-release-{source.version}"],
        },
        "packages": entries,
        "relationships": related,
    }


def _package(
    key: str,
    name: str,
    version: str,
    reference: str = "",
    *,
    digest: str = "",
    license_name: str = _NOTHING,
    file: str = "",
) -> Json:
    return {
        "SPDXID": f"SPDXRef-{key}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": _NOTHING,
        "filesAnalyzed": False,
        "licenseConcluded": _NOTHING,
        "licenseDeclared": license_name,
        "copyrightText": _NOTHING,
        **({"packageFileName": file} if file else {}),
        **({"checksums": [{"algorithm": "SHA256", "checksumValue": digest}]} if digest else {}),
        **(
            {
                "externalRefs": [
                    {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": reference}
                ]
            }
            if reference
            else {}
        ),
    }


def _related(one: str, how: str, other: str) -> Json:
    return {"spdxElementId": f"SPDXRef-{one}", "relationshipType": how, "relatedSpdxElement": f"SPDXRef-{other}"}
