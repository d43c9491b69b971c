"""Files and folders as values: flows and activities pass references to each other, and the content is in an artifact store.

    @etl.activity()
    def extract(day: date) -> File:
        rows = File.create("rows.csv")
        rows.path.write_text(...)
        return rows

The reference is that of an output artifact, with the name of the file. Where a function of an activity runs, an `Exchange` stores
what it returns, and has the content of what it gets; elsewhere, such as in a flow, there are references only.
"""

from __future__ import annotations

import tempfile
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

from perdure.api.names import ARTIFACT_FIELD

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

MARK: Final = "perdure.dev/file"
"""The key of the metadata that schemas of these types have, by which codecs find them in other types."""


class Exchange(Protocol):
    """Stores what an activity returns, and has what it gets."""

    def create_folder(self) -> Path:
        """Return a new folder, from which files need not be copied to be stored."""

    def put(self, value: StoredValue) -> Mapping[str, Any]:
        """Store a file or a folder, and return its reference: for the same path, the same one.

        Raises:
            ValueError: It does not exist, or there are too many.
        """

    def get(self, reference: Mapping[str, Any]) -> Path:
        """Return the path of the content.

        Raises:
            ValueError: The activity does not have it.
        """


EXCHANGE: ContextVar[Exchange | None] = ContextVar("perdure.files", default=None)
"""The exchange of the activity that runs; None outside of activities, and in flows."""


class StoredValue:
    """What files and folders have in common."""

    archive: ClassVar[str]
    """How the content is packed in the store."""

    def __init__(self, path: str | os.PathLike[str] | None, *, reference: Mapping[str, Any] | None = None) -> None:
        """Take a file or a folder that the activity has written; returning it from the activity stores it.

        Args:
            path: Its path in the activity; None where there is a reference only.
            reference: What is in the store, if it is stored.
        """
        self._path = None if path is None else Path(path)
        self._reference = None if reference is None else dict(reference)
        self._exchange = None if reference is None else EXCHANGE.get()
        """What has the content: held, because a local run deletes its files with it."""

    @classmethod
    def _create(cls, name: str) -> Self:
        exchange = EXCHANGE.get()
        folder = Path(tempfile.mkdtemp()) if exchange is None else exchange.create_folder()
        return cls(folder / name)

    @classmethod
    def from_reference(cls, reference: Any) -> Self:
        """Return the value of a reference; in an activity, with its content.

        Args:
            reference: An object with `key`, and perhaps `store`, `size`, `sha256`, `archive`, and `name`.

        Raises:
            ValueError: It is not a reference to a value of this type, or the activity does not have the content.
        """
        if not isinstance(reference, dict):
            raise ValueError("this is not a reference to an artifact")  # noqa: TRY004 - validators report ValueErrors
        if ARTIFACT_FIELD in reference:
            raise ValueError("the operator has not stored it: this needs an operator of Perdure 0.2.0 or later")
        if not isinstance(reference.get("key"), str) or reference.get("archive", cls.archive) != cls.archive:
            raise ValueError(f"this is not a reference to a {cls.__name__.lower()} in an artifact store")
        exchange = EXCHANGE.get()
        return cls(None if exchange is None else exchange.get(reference), reference=reference)

    def to_reference(self) -> dict[str, Any]:
        """Return the reference; one that an activity has made is stored for that.

        Raises:
            ValueError: It has no content, or this is not an activity.
        """
        if self._reference is not None:
            return dict(self._reference)
        exchange = EXCHANGE.get()
        if exchange is None:
            raise ValueError(f"{self!r} is not in an artifact store: return it from an activity, which stores it")
        return dict(exchange.put(self))

    @property
    def path(self) -> Path:
        """The content, in an activity: to read, or in a new one to write.

        Raises:
            RuntimeError: This is not an activity, so that there is a reference only.
        """
        if self._path is None:
            raise RuntimeError(f"{self!r} has no content here: read it in an activity that gets it as an argument")
        return self._path

    def __fspath__(self) -> str:
        """Return the path, so that `open(file)` works in an activity."""
        return str(self.path)

    @property
    def name(self) -> str:
        """Its name, such as `rows.csv`; the path in an activity that gets it has another."""
        return self._path.name if self._reference is None and self._path else str(self._field("name") or "")

    @property
    def size(self) -> int | None:
        """The size in the store, in bytes; None if it is not stored yet."""
        found: int | None = self._field("size")
        return found

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of what is in the store; None if it is not stored yet."""
        found: str | None = self._field("sha256")
        return found

    @property
    def key(self) -> str | None:
        """The key in the store; None if it is not stored yet."""
        found: str | None = self._field("key")
        return found

    def _field(self, name: str) -> Any:
        return (self._reference or {}).get(name)

    def __eq__(self, other: object) -> bool:
        """Compare what they refer to."""
        if not isinstance(other, StoredValue) or type(other) is not type(self):
            return NotImplemented
        return (self.key or self._path) == (other.key or other._path)

    def __hash__(self) -> int:
        """Hash what it refers to."""
        return hash(self.key or self._path)

    def __repr__(self) -> str:
        """Show what it refers to."""
        return f"{type(self).__name__}({str(self.key or self._path)!r})"

    # How pydantic encodes it

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Describe the type to pydantic."""
        from pydantic_core import PydanticSerializationUnexpectedValue, core_schema  # noqa: PLC0415 - with pydantic only

        def valid(value: Any) -> Any:
            return value if isinstance(value, cls) else cls.from_reference(value)

        def plain(value: Any) -> Any:
            if not isinstance(value, cls):
                raise PydanticSerializationUnexpectedValue(f"expected {cls.__name__}")
            return value.to_reference()

        return core_schema.no_info_plain_validator_function(
            valid,
            serialization=core_schema.plain_serializer_function_ser_schema(plain),
            metadata={MARK: cls.__name__},
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        """Describe the reference."""
        return {
            "type": "object",
            "title": cls.__name__,
            "required": ["key"],
            "properties": {
                "store": {"type": "string"},
                "key": {"type": "string"},
                "size": {"type": "integer"},
                "sha256": {"type": "string"},
                "archive": {"const": cls.archive},
                "name": {"type": "string"},
            },
        }


class File(StoredValue):
    """A file that activities pass to each other."""

    archive = "None"

    @classmethod
    def create(cls, name: str) -> Self:
        """Return a file to write at its `path`, where it need not be copied to be stored.

        Args:
            name: Its name, such as `rows.csv`.
        """
        return cls._create(name)


class Folder(StoredValue):
    """A folder that activities pass to each other; the store has it as a tar archive compressed by gzip."""

    archive = "Tar"

    @classmethod
    def create(cls, name: str) -> Self:
        """Return a new, empty folder at its `path`, where it need not be copied to be stored.

        Args:
            name: Its name, such as `model`.
        """
        folder = cls._create(name)
        folder.path.mkdir()
        return folder
