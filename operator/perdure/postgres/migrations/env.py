"""Run the migrations on the connection of the caller. Alembic imports this module."""

from alembic import context

from perdure.postgres.schema import SCHEMA

context.configure(connection=context.config.attributes["connection"], version_table_schema=SCHEMA)
context.run_migrations()
