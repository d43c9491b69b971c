"""The example of a bucket signs its requests as Amazon's documentation of Signature Version 4 does."""

import importlib.util
from types import ModuleType

import pytest

from support.manuals import REPOSITORY


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bucket", REPOSITORY / "examples" / "bucket" / "activities.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_requests_have_the_documented_aws_signature(example: ModuleType, query: str, signature: str) -> None:
    headers = example.signed(
        "GET",
        f"https://examplebucket.s3.amazonaws.com/?{query}",
        b"",
        "20130524T000000Z",
        region="us-east-1",
        key="AKIAIOSFODNN7EXAMPLE",
        secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )
    assert headers["authorization"].endswith(f"Signature={signature}")
