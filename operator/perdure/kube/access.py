"""Find the API server and the credentials for it: the service account of a pod, or a kubeconfig, read as kubectl does.

The official package `kubernetes` reads kubeconfig files, too, but takes too long to import for a command. It is used only for
users with an `auth-provider`: it renews their tokens, which differs from provider to provider.
"""

import base64
import binascii
import json
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from perdure.extras import MissingExtraError, required
from perdure.lazy import lazily

with lazily():
    import subprocess

    import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address of an API server and the credentials for it.

    A token file is read for each use, because the kubelet renews the token.
    """

    server: str
    namespace: str = "default"
    ca_file: str | None = None
    token: str | None = None
    token_file: Path | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    verify: bool = True
    ca_data: str | None = None
    """The certificate authority as PEM; takes precedence over the file."""
    client_cert_data: str | None = None
    client_key_data: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host of `server`."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers of each request, such as those that impersonate a user."""
    timeout: float | None = None
    """Timeout of a request in seconds; None for the default, 0 for no limit."""

    def bearer(self) -> str | None:
        """The bearer token; None if a client certificate authenticates requests."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context of this access; None for plain HTTP."""
        if self.server.startswith("http://"):
            return None
        context = ssl.create_default_context(cafile=None if self.ca_data else self.ca_file, cadata=self.ca_data)
        if self.client_cert_data or self.client_cert_file:
            self._load_certificate(context)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the client certificate. The library reads only files, so inline data is briefly written to one."""
        if not (self.client_cert_data or self.client_key_data):
            context.load_cert_chain(str(self.client_cert_file), self.client_key_file)
            return
        certificate = self.client_cert_data or Path(str(self.client_cert_file)).read_text()
        key = self.client_key_data or (Path(self.client_key_file).read_text() if self.client_key_file else "")
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate.rstrip()}\n{key}")
            file.flush()
            context.load_cert_chain(file.name)


class NoAccessError(Exception):
    """Neither a pod's service account nor a kubeconfig has the address of the API server."""


_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_access(*, context: str | None = None, host: str = "", port: str = "443") -> Access:
    """Find the access: the pod's service account if there is one, otherwise the kubeconfig.

    Args:
        context: A context of the kubeconfig; None for the current one.
        host: The value of ``KUBERNETES_SERVICE_HOST``, empty outside a pod.
        port: The value of ``KUBERNETES_SERVICE_PORT``.

    Raises:
        NoAccessError: There is neither.
    """
    found = service_account(host, port) if host else None
    if found is not None:
        return found
    return load_kubeconfig(Overrides(context=context))


def service_account(host: str, port: str) -> Access | None:
    """The access of the pod's service account; None if no token is mounted.

    Args:
        host: The value of ``KUBERNETES_SERVICE_HOST``.
        port: The value of ``KUBERNETES_SERVICE_PORT``.
    """
    if not (_SERVICE_ACCOUNT / "token").exists():
        return None
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=(_SERVICE_ACCOUNT / "namespace").read_text().strip(),
        ca_file=str(_SERVICE_ACCOUNT / "ca.crt"),
        token_file=_SERVICE_ACCOUNT / "token",
    )


Json = dict[str, Any]

_NAMED: Final = ("clusters", "users", "contexts")


class InvalidKubeconfigError(ValueError):
    """A kubeconfig is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The options of the command line that override the kubeconfig; None or empty if not set."""

    kubeconfig: str | None = None
    """A single file to use instead of the files in `KUBECONFIG`."""
    context: str | None = None
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None
    server: str | None = None
    token: str | None = None
    certificate_authority: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    impersonate: str | None = None
    impersonate_groups: Sequence[str] = ()
    impersonate_uid: str | None = None
    request_timeout: float | None = None
    """Seconds; None for the default, 0 for no limit."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


def load_kubeconfig(overrides: Overrides) -> Access:
    """Find the address and the credentials for the cluster of a context.

    Args:
        overrides: The options of the command line.

    Raises:
        NoAccessError: No kubeconfig exists, it names no cluster, or a credential plugin failed.
        InvalidKubeconfigError: A kubeconfig is invalid.
        OSError: A file that it names cannot be read.
    """
    files = config_files(overrides)
    merged = merge_kubeconfigs(files)
    name = overrides.context or merged.get("current-context") or ""
    context = _named(merged, "contexts", name, required=bool(overrides.context))
    cluster = dict(_named(merged, "clusters", overrides.cluster or context.get("cluster") or ""))
    user = dict(_named(merged, "users", overrides.user or context.get("user") or ""))
    cluster |= _set_values(
        {
            "server": overrides.server,
            "certificate-authority": overrides.certificate_authority,
            "insecure-skip-tls-verify": overrides.insecure_skip_tls_verify or None,
            "tls-server-name": overrides.tls_server_name,
        }
    )
    if not cluster.get("server"):
        where = f"{', '.join(map(str, files))} has no current context" if files else "there is no kubeconfig"
        raise NoAccessError(f"no access to a cluster: {where}; set KUBECONFIG, or run `make cluster`")
    if overrides.token or overrides.client_certificate:
        user = {}
    user |= _set_values(
        {
            "token": overrides.token,
            "client-certificate": overrides.client_certificate,
            "client-key": overrides.client_key,
            "as": overrides.impersonate,
            "as-groups": list(overrides.impersonate_groups) or None,
            "as-uid": overrides.impersonate_uid,
        }
    )
    if "exec" in user and not _has_credentials(user):
        user |= _plugin_credentials(user["exec"], cluster, overrides.environment)
    elif "auth-provider" in user and not _has_credentials(user):
        user |= {"token": _provider_token(name, overrides.kubeconfig)}
    return _access(cluster, user, overrides.namespace or context.get("namespace") or "default", overrides)


def with_overrides(access: Access, overrides: Overrides) -> Access:
    """Apply the options that do not select another cluster to a pod's own access: namespace, token, and impersonated user.

    Args:
        access: The access.
        overrides: The options of the command line.
    """
    user = {
        "as": overrides.impersonate,
        "as-groups": list(overrides.impersonate_groups),
        "as-uid": overrides.impersonate_uid,
    }
    return replace(
        access,
        namespace=overrides.namespace or access.namespace,
        token=overrides.token,
        token_file=None if overrides.token else access.token_file,
        headers=_headers(user),
        timeout=overrides.request_timeout,
    )


def config_files(overrides: Overrides) -> list[Path]:
    """List the kubeconfig files that exist.

    Args:
        overrides: The options of the command line.

    Raises:
        NoAccessError: The file of `--kubeconfig` does not exist.
    """
    if overrides.kubeconfig:
        only = Path(overrides.kubeconfig)
        if not only.exists():
            raise NoAccessError(f"no access to a cluster: the kubeconfig {only} does not exist")
        return [only]
    paths = overrides.environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return [path for path in map(Path, filter(None, paths.split(os.pathsep))) if path.is_file()]


def merge_kubeconfigs(files: Sequence[Path]) -> Json:
    """Merge kubeconfig files. If two entries have the same name, the first one wins.

    Args:
        files: The files.

    Returns:
        Clusters, users and contexts by name, with absolute paths, and the current context.

    Raises:
        InvalidKubeconfigError: A file is not a kubeconfig.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    merged: Json = {plural: {} for plural in _NAMED}
    for file in files:
        try:
            content = yaml.load(file.read_text(encoding="utf-8"), Loader=loader) or {}  # noqa: S506 - a safe loader
        except yaml.YAMLError as error:
            raise InvalidKubeconfigError(f"{file} is not valid YAML: {error}") from error
        if not isinstance(content, dict):
            raise InvalidKubeconfigError(f"{file} is not a kubeconfig")
        merged.setdefault("current-context", content.get("current-context") or None)
        merged["current-context"] = merged["current-context"] or content.get("current-context")
        for plural in _NAMED:
            for entry in content.get(plural) or ():
                if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                    raise InvalidKubeconfigError(f"{file}: each entry of `{plural}` must have a name")
                body = entry.get(plural.removesuffix("s")) or {}
                if not isinstance(body, dict):
                    raise InvalidKubeconfigError(f"{file}: `{plural}` has an invalid entry `{entry['name']}`")
                merged[plural].setdefault(entry["name"], _absolute(body, file.parent))
    return merged


def _absolute(body: Json, folder: Path) -> Json:
    """Resolve the relative paths of an entry against the folder of its kubeconfig."""
    paths = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    return {**body, **{key: str(folder / body[key]) for key in paths if body.get(key)}}


def _named(merged: Json, plural: str, name: str, *, required: bool = False) -> Json:
    found: Json | None = merged[plural].get(name)
    if found is None and (required or (name and plural != "contexts")):
        known = ", ".join(f"`{each}`" for each in merged[plural]) or "none"
        kind = plural.removesuffix("s")
        raise NoAccessError(f"no access to a cluster: the kubeconfig has no {kind} `{name}`; it has {known}")
    return found or {}


def _set_values(values: Json) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def _has_credentials(user: Json) -> bool:
    return any(user.get(key) for key in ("token", "tokenFile", "client-certificate", "client-certificate-data"))


def _access(cluster: Json, user: Json, namespace: str, overrides: Overrides) -> Access:
    verify = not cluster.get("insecure-skip-tls-verify")
    return Access(
        server=str(cluster["server"]),
        namespace=namespace,
        ca_file=cluster.get("certificate-authority") if verify else None,
        ca_data=_decoded(cluster, "certificate-authority-data") if not overrides.certificate_authority else None,
        token=user.get("token") or None,
        token_file=Path(user["tokenFile"]) if user.get("tokenFile") and not user.get("token") else None,
        client_cert_file=user.get("client-certificate"),
        client_cert_data=_decoded(user, "client-certificate-data"),
        client_key_file=user.get("client-key"),
        client_key_data=_decoded(user, "client-key-data"),
        verify=verify,
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        headers=_headers(user),
        timeout=overrides.request_timeout,
    )


def _decoded(entry: Json, key: str) -> str | None:
    """Read a certificate or key. Inline data takes precedence over a file."""
    data = entry.get(key)
    try:
        return base64.b64decode(data, validate=False).decode() if data else None
    except (binascii.Error, TypeError, UnicodeDecodeError) as error:
        raise InvalidKubeconfigError(f"`{key}` is not base64 of PEM: {error}") from error


def _headers(user: Json) -> tuple[tuple[str, str], ...]:
    """Return the headers of a password, and of the user to impersonate."""
    found = []
    if user.get("username"):
        secret = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
        found.append(("Authorization", f"Basic {secret}"))
    if user.get("as"):
        found.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        found.append(("Impersonate-Uid", str(user["as-uid"])))
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        found += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return tuple(found)


def _plugin_credentials(plugin: Json, cluster: Json, environment: Mapping[str, str]) -> Json:
    """Run a credential plugin, such as those of cloud providers (client.authentication.k8s.io).

    Raises:
        NoAccessError: The plugin cannot be started, failed, or did not print credentials.
    """
    command = str(plugin.get("command") or "")
    version = plugin.get("apiVersion") or "client.authentication.k8s.io/v1"
    spec: Json = {"interactive": plugin.get("interactiveMode") != "Never" and os.isatty(0)}
    if plugin.get("provideClusterInfo"):
        known = ("server", "certificate-authority-data", "tls-server-name", "proxy-url", "insecure-skip-tls-verify")
        spec["cluster"] = {key: cluster[key] for key in known if key in cluster}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    variables = {entry["name"]: str(entry["value"]) for entry in plugin.get("env") or ()}
    try:
        done = subprocess.run(  # noqa: S603 - the user's kubeconfig names it
            [command, *map(str, plugin.get("args") or ())],
            env={**environment, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdout=subprocess.PIPE,
            check=True,
        )
        status = json.loads(done.stdout)["status"]
    except FileNotFoundError as error:
        hint = " ".join(str(plugin.get("installHint") or "install it, or add its folder to PATH").split())
        raise NoAccessError(f"the credential plugin `{command}` of the kubeconfig was not found; {hint}") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoAccessError(f"the credential plugin `{command}` of the kubeconfig failed: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise NoAccessError(f"the credential plugin `{command}` of the kubeconfig printed no credentials") from error
    found = {"token": status.get("token")}
    for key, source in (("client-certificate-data", "clientCertificateData"), ("client-key-data", "clientKeyData")):
        if status.get(source):
            found[key] = base64.b64encode(str(status[source]).encode()).decode()
    return found


def _provider_token(context: str, kubeconfig: str | None) -> str | None:
    """Obtain the token of a user with an `auth-provider` through the official package."""
    try:
        with required("auth-provider"):
            from kubernetes import client, config  # noqa: PLC0415 - slow to import, and not everyone needs it
    except MissingExtraError as error:
        raise NoAccessError(f"no access to a cluster: its user has an `auth-provider`: {error}") from error
    configuration = client.Configuration()
    try:
        config.load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise NoAccessError(f"no access to a cluster: {error}") from error
    keys = configuration.api_key or {}
    token = keys.get("authorization") or keys.get("BearerToken")
    return str(token).removeprefix("Bearer ") if token else None
