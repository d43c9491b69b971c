"""Every type that operators store is guarded: its fields are recorded, or what a newer version adds to it is ignored."""

import base64
import importlib
import pkgutil
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import perdure
from perdure.api.labels import BATCH_ANNOTATION, SCHEDULE_TIMES_ANNOTATION
from perdure.api.stored import MessageStruct, StoredStruct, read_annotation
from perdure.engine.starts import Callback
from perdure.frontend.messages import tokens
from perdure.frontend.messages.tokens import Token
from perdure.frontend.workflows.batches import Batch
from perdure.runtime.callbacks import TOKEN_HEADER, CallbackToken, token_of
from perdure.schedule.run_manifests import ScheduleTimes
from simulated.versions import forms
from support.stored_forms import STORED, TOLERATED, leaves, parts

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def test_every_stored_type_is_guarded() -> None:
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if ".migrations" not in module.name:  # Alembic imports these
            importlib.import_module(module.name)
    types = {each for base in (StoredStruct, MessageStruct, Token, CallbackToken) for each in leaves(base)}
    guarded = {cls for kind in (*STORED, *TOLERATED) for cls in parts(kind)}
    forgotten = {each.__qualname__ for each in types - guarded if each.__module__.startswith("perdure.")}
    assert not forgotten, "add them to STORED or TOLERATED in tests/support/stored_forms.py"


def with_news(value: Any) -> bytes:
    """The JSON of a value, as a version that knows one more field has written it."""
    return msgspec.json.encode({**msgspec.to_builtins(value), "news": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (BATCH_ANNOTATION, Batch(job_id="b", type="SignalWorkflow", started=NOW, total=3)),
        (SCHEDULE_TIMES_ANNOTATION, ScheduleTimes(time_zone="Europe/Berlin", utc_offset=3600, previous_time=NOW)),
    ],
)
def test_an_annotation_that_is_written_once_is_read_without_the_fields_of_a_newer_version(key: str, value: Any) -> None:
    obj = {"metadata": {"annotations": {key: with_news(value).decode()}}}
    assert read_annotation(obj, key, type(value)) == value


@pytest.mark.parametrize("token", forms.TOKENS, ids=lambda each: type(each).__name__)
def test_a_token_is_read_without_the_fields_of_a_newer_version(token: Token) -> None:
    assert tokens.unpack(with_news(token), type(token), "shop") == token


def test_the_token_of_a_callback_is_read_without_the_fields_of_a_newer_version() -> None:
    header = {TOKEN_HEADER: base64.urlsafe_b64encode(with_news(forms.CALLBACK)).decode()}
    assert token_of(Callback(url="temporal://system", header=header)) == forms.CALLBACK
