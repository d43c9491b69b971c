"""The archive of finished runs in PostgreSQL. Nothing else in Perdure uses a database."""
