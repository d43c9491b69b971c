"""The options of kubectl that every verb has: the cluster and the user.

They can stand anywhere on the command line. `perdure options` lists them.
"""

import re
from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import click

from perdure.api.times import parse_duration
from perdure.kube.access import Overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One of the options."""

    name: str
    field: str
    """The field of `Overrides`."""
    help: str
    metavar: str = ""
    """The placeholder of the value in the help; empty for a flag without a value."""
    short: str = ""
    several: bool = False


GLOBAL = (
    Flag(name="--as", field="impersonate", metavar="USER", help="User to impersonate"),
    Flag(
        name="--as-group",
        field="impersonate_groups",
        metavar="GROUP",
        help="Group to impersonate; repeatable",
        several=True,
    ),
    Flag(name="--as-uid", field="impersonate_uid", metavar="UID", help="UID to impersonate"),
    Flag(
        name="--certificate-authority",
        field="certificate_authority",
        metavar="FILE",
        help="Certificate of the authority that signed the API server's certificate",
    ),
    Flag(name="--client-certificate", field="client_certificate", metavar="FILE", help="Client certificate"),
    Flag(name="--client-key", field="client_key", metavar="FILE", help="Key of the client certificate"),
    Flag(name="--cluster", field="cluster", metavar="NAME", help="Cluster of the kubeconfig"),
    Flag(
        name="--insecure-skip-tls-verify",
        field="insecure_skip_tls_verify",
        help="Do not check the API server's certificate; this makes the connection insecure",
    ),
    Flag(name="--kubeconfig", field="kubeconfig", metavar="FILE", help="Kubeconfig file; default: KUBECONFIG"),
    Flag(
        name="--request-timeout",
        field="request_timeout",
        metavar="DURATION",
        help="How long one request may take, such as 30s; 0 for no limit",
    ),
    Flag(name="--server", field="server", metavar="URL", help="Address of the API server", short="-s"),
    Flag(
        name="--tls-server-name",
        field="tls_server_name",
        metavar="NAME",
        help="Name in the API server's certificate, if it differs from its host",
    ),
    Flag(name="--token", field="token", metavar="TOKEN", help="Bearer token"),
    Flag(name="--user", field="user", metavar="NAME", help="User of the kubeconfig"),
)

_BY_NAME = {name: flag for flag in GLOBAL for name in (flag.name, flag.short) if name}
_values: ContextVar[dict[str, Any] | None] = ContextVar("flags", default=None)


def extract(arguments: list[str], precedence: Collection[str] = ()) -> list[str]:
    """Remove the global options from the arguments of a verb, and keep their values for `overrides`.

    Args:
        arguments: The arguments.
        precedence: Names of the options of the verb, which take precedence.

    Returns:
        The other arguments.

    Raises:
        BadParameter: A value is missing or invalid.
    """
    rest, found = list[str](), dict[str, Any]()
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest += [argument, *remaining]
            break
        name, equals, text = argument.partition("=")
        flag = None if name in precedence else _BY_NAME.get(name)
        if flag is None:
            rest.append(argument)
        elif not flag.metavar:
            found[flag.field] = not equals or text.lower() == "true"
        else:
            value = _value(flag, text if equals else next(remaining, None))
            found[flag.field] = [*found.get(flag.field, ()), value] if flag.several else value
    _values.set(found)
    return rest


def overrides(context: str | None, namespace: str | None) -> Overrides:
    """Return the cluster options of the command line.

    Args:
        context: The value of `--context`.
        namespace: The value of `--namespace`.
    """
    return Overrides(context=context, namespace=namespace, **(_values.get() or {}))


def kubectl_arguments(context: str | None) -> list[str]:
    """Return the cluster options of the command line as arguments of kubectl.

    `--request-timeout` is omitted: it would end a port-forward.

    Args:
        context: The value of `--context`.
    """
    values = dict(_values.get() or {})
    values.pop("request_timeout", None)
    found = [] if context is None else [f"--context={context}"]
    for flag in GLOBAL:
        value = values.get(flag.field)
        if isinstance(value, bool):
            found += [flag.name] if value else []
        elif value is not None:
            found += [f"{flag.name}={each}" for each in (value if flag.several else [value])]
    return found


def takes_value(argument: str) -> bool | None:
    """Return whether the next argument is the value of a global option; None if it is not one."""
    name, equals, _ = argument.partition("=")
    flag = _BY_NAME.get(name)
    return None if flag is None else bool(flag.metavar) and not equals


def _value(flag: Flag, text: str | None) -> Any:
    if text is None:
        raise click.BadParameter("requires a value", param_hint=flag.name)
    if flag.field != "request_timeout":
        return text
    if re.fullmatch(r"\d{1,6}", text):
        return float(text)
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=flag.name) from error
