"""The `perdure` command, also installed as `kubectl-perdure`.

A command starts fast: before its first request, it imports nothing that is slow to import. That is what needs pydantic (models,
definitions), rich (`perdure.view`), msgspec, orjson, PyYAML, or aiohttp. Modules import it `lazily` (`perdure.lazy`), so that it
is loaded where it is used, after the answer. tests/unit/cli/test_startup.py counts the modules of each command.
"""
