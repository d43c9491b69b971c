"""The documented permissions of the operator and of frontends are those of the chart."""

import re
from collections import defaultdict
from typing import Any

from support.manuals import REPOSITORY
from unit.chart.manifests import named


def documented(section: str) -> dict[str, set[str]]:
    """Resource and verbs, by the table of a section."""
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    section = text.split(f"## {section}\n")[1].split("\n## ")[0].split("### ")[0]
    found: dict[str, set[str]] = {}
    for names, verbs in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        resources = [name for name in re.findall(r"`([^`]+)`", names) if name != "perdure-activity"]
        each = [set(part.split(", ")) for part in verbs.split("; ")]
        for index, resource in enumerate(resources):
            found[resource] = each[index if len(each) > 1 else 0]
    return found


def test_the_documented_permissions_are_those_of_the_chart(render: Any) -> None:
    granted: dict[str, set[str]] = defaultdict(set)
    roles = [named(render(), "ClusterRole", name) for name in ("perdure", "perdure-temporal")]
    roles.append(named(render(), "Role", "perdure-temporal-tls"))
    for rule in (rule for role in roles for rule in role["rules"]):
        for resource in rule["resources"]:
            granted[resource] |= set(rule["verbs"])
    assert documented("Permissions of the operator") == granted


def test_the_documented_permissions_of_frontends_are_those_of_the_chart(render: Any) -> None:
    manifests = render("frontend.replicas=2")
    granted: dict[str, set[str]] = defaultdict(set)
    roles = [named(manifests, kind, "perdure-frontend") for kind in ("ClusterRole", "Role")]
    for rule in (rule for role in roles for rule in role["rules"]):
        for resource in rule["resources"]:
            granted[resource] |= set(rule["verbs"])
    assert documented("Permissions of frontends") == granted
