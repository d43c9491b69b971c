"""The schema of the archive, in Alembic's migrations.

Operators of two versions use the archive during an upgrade and after a rollback: a migration adds, and an older operator ignores
what it does not know. A migration that removes something must be at least one release behind the last use.
"""
