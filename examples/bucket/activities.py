"""Files in a bucket of any S3-compatible server. Needs an image with Python and `perdure.activity`, and nothing else.

Only the name of a file passes through the workflow, never its content. The environment says where the bucket is: S3_ENDPOINT
(such as ``https://s3.eu-central-1.amazonaws.com``), S3_REGION, S3_BUCKET, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
"""

import hashlib
import hmac
import os
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from perdure import activity

FINAL = {400, 401, 403, 404}
"""Responses that another attempt would get too."""


def signed(method: str, url: str, body: bytes, moment: str, *, region: str, key: str, secret: str) -> dict[str, str]:
    """The headers of a request at a moment such as ``20260131T120000Z``, with its AWS Signature Version 4."""
    parts, digest = urlsplit(url), hashlib.sha256(body).hexdigest()
    kind = {"content-type": "application/octet-stream"} if body else {}
    headers = {**kind, "host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": moment}
    listed = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{parts.path}\n{parts.query}\n{lines}\n{listed}\n{digest}"
    day = moment[:8]
    scope = f"{day}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request", text):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = f"Credential={key}/{scope},SignedHeaders={listed},Signature={signing.hex()}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {signature}"}


def call(method: str, name: str, body: bytes = b"") -> bytes:
    """Read, write or delete a file of the bucket."""
    env = os.environ
    url = f"{env['S3_ENDPOINT'].rstrip('/')}/{env['S3_BUCKET']}/{quote(name)}"
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    identity = {"key": env["AWS_ACCESS_KEY_ID"], "secret": env["AWS_SECRET_ACCESS_KEY"]}
    headers = signed(method, url, body, moment, region=env["S3_REGION"], **identity)
    data = body if method == "PUT" else None
    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 (the Secret says where)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        message = f"{method} {name}: {error.code} {error.read()[:500].decode(errors='replace')}"
        raise activity.ApplicationError(message, type="BucketError", non_retryable=error.code in FINAL) from error


def write(params: dict[str, Any]) -> str:
    """Write a file, and return its name: the same in each attempt, so that a retry replaces the file of an earlier attempt."""
    name = f"{activity.info().run_id}/numbers"
    content = "".join(f"{number}\n" for number in range(1, params["count"] + 1))
    call("PUT", name, content.encode())
    return name


def read(name: str) -> int:
    """Count the lines of a file."""
    return len(call("GET", name).splitlines())


def clean(name: str) -> None:
    """Delete a file."""
    call("DELETE", name)


if __name__ == "__main__":
    activity.main({"write": write, "read": read, "clean": clean})
