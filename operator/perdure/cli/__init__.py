"""The `perdure` command, also installed as `kubectl-perdure`.

A command starts fast: before its first request, it imports nothing that is slow to import. That is what needs pydantic (models,
definitions), rich (`perdure.view`), msgspec, orjson, PyYAML, or aiohttp. Functions import it where they use it, after the answer.
Everything else is imported at the top. tests/unit/cli/test_startup.py counts the modules of each command.
"""
