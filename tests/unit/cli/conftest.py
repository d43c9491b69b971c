from collections.abc import Iterator
from pathlib import Path

import pytest

from support.apiserver import ApiServer, serving


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with serving(tmp_path, monkeypatch) as api:
        yield api
