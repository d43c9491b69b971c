import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perdure.lazy import lazily


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose modules report when they are executed, in `sys.executed`."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("one", "other"):
        (folder / f"{name}.py").write_text(f"import sys\nsys.executed.append({name!r})\nVALUE = {name!r}\n")
    (folder / "broken.py").write_text("import there_is_no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "executed", [], raising=False)
    for name in ("", ".one", ".other", ".broken"):
        monkeypatch.delitem(sys.modules, f"lazy_package{name}", raising=False)
    return folder


def imported(name: str) -> ModuleType:
    return importlib.import_module(f"lazy_package.{name}")


@pytest.mark.usefixtures("package")
def test_a_module_is_executed_by_its_first_use_and_once() -> None:
    executed: list[str] = sys.executed  # type: ignore[attr-defined]
    with lazily():
        one = imported("one")
    with lazily():
        assert imported("one") is one
    assert imported("one") is one
    inspect.getmodule(test_a_module_is_executed_by_its_first_use_and_once)  # it looks at all modules
    assert executed == []
    assert (one.VALUE, one.VALUE) == ("one", "one")
    assert executed == ["one"]


@pytest.mark.usefixtures("package")
def test_an_import_of_a_name_executes_the_module_and_so_does_every_import_outside_of_the_block() -> None:
    executed: list[str] = sys.executed  # type: ignore[attr-defined]
    with lazily():
        from lazy_package.one import VALUE  # type: ignore[import-not-found] # noqa: PLC0415
    assert (VALUE, executed) == ("one", ["one"])
    imported("other")
    assert executed == ["one", "other"]


@pytest.mark.usefixtures("package")
def test_an_error_of_the_module_appears_at_its_first_use() -> None:
    with lazily():
        broken = imported("broken")
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_package"):
        _ = broken.VALUE


@pytest.mark.usefixtures("package")
def test_a_missing_module_is_reported_immediately() -> None:
    with lazily(), pytest.raises(ModuleNotFoundError):
        imported("missing")
