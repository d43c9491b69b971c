"""The form of everything that the operator stores, and of the messages between operators: JSON, read without losing anything.

An operator that does not know a field would drop it with its next write, and sign the loss. So an unknown field is an error: a
newer version wrote it, and the operator does nothing with the object. `perdure.api.lenient` reads the known part of such objects,
to show it, or to decide about another object. The result is never stored.
"""

import msgspec


class StoredStruct(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """Base of stored values: camelCase in JSON without defaults; an unknown field or value is a `msgspec.ValidationError`."""


class MessageStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of values in messages between operators; an unknown field or value is a `msgspec.ValidationError`."""
