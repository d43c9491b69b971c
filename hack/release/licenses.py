"""The licenses of everything in the image, and which of them are allowed."""

import re
from collections.abc import Iterable, Mapping
from email.message import Message

from cluster.errors import ClusterError

ALLOWED = frozenset(
    {
        *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Clear", "CNRI-Python", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "0BSD"),
        "LGPL-3.0-only",  # psycopg: unchanged, and imported from its own files, so that users can replace it
    }
)
"""Licenses of Python packages, as SPDX names them: they permit to distribute the image under Perdure's own license. The licenses
of Debian packages are not checked: Debian only has packages that may be distributed. Their copyright files are in the image."""

_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
"""Trove classifiers, and what SPDX calls the license."""
_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License 2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "Dual License": "Apache-2.0 OR BSD-3-Clause",
    "MIT License": "MIT",
    "PSF": "PSF-2.0",
}
"""Names that packages use, and what SPDX calls the license."""


def license_of(metadata: Message) -> str:
    """Read the license of a Python package as an SPDX expression; ``NOASSERTION`` if it does not state one."""
    if stated := metadata.get("License-Expression"):
        return str(stated)
    text = str(metadata.get("License") or "").strip()
    if text in ALLOWED:
        return text
    if text in _NAMES:
        return _NAMES[text]
    classifiers = [str(each).rpartition(" :: ")[2] for each in metadata.get_all("Classifier", [])]
    known = sorted({_CLASSIFIERS[each] for each in classifiers if each in _CLASSIFIERS})
    return " OR ".join(known) or "NOASSERTION"


def check(found: Mapping[str, str]) -> None:
    """Check the licenses of packages, by the name of the package.

    Raises:
        ClusterError: A license is not allowed.
    """
    refused = [
        f"{name}: {license_name}" for name, license_name in sorted(found.items()) if not _is_allowed(license_name)
    ]
    if refused:
        listed = "\n  ".join(refused)
        raise ClusterError(
            f"These dependencies have a license that hack/release/licenses.py does not allow:\n  {listed}\n"
            "Use another package, or add the license to ALLOWED if it permits to distribute the image under Apache-2.0."
        )


def _is_allowed(expression: str) -> bool:
    """Whether an SPDX expression permits the distribution: all parts of AND, one part of OR."""
    parts = re.sub(r"[()]", " ", expression)
    return any(
        all(each.split(" WITH ")[0].strip() in ALLOWED for each in choice.split(" AND "))
        for choice in parts.split(" OR ")
    )


def listing(python: Mapping[str, tuple[str, str]], debian: Iterable[tuple[str, str, tuple[str, ...]]]) -> str:
    """Write the list of licenses.

    Args:
        python: Version and license of Python packages, by their names.
        debian: Names, versions, and the licenses that the copyright files of Debian packages name.
    """
    lines = [
        "Licenses of what the image contains",
        "",
        "Perdure itself: Apache-2.0 (LICENSE)",
        "",
        "Python packages",
        "",
    ]
    lines += [f"  {name} {version}: {license_name}" for name, (version, license_name) in sorted(python.items())]
    lines += ["", "Debian packages; the whole text is in /usr/share/doc/PACKAGE/copyright of the image", ""]
    lines += [f"  {name} {version}: {', '.join(names) or 'see its copyright file'}" for name, version, names in debian]
    return "\n".join(lines) + "\n"
