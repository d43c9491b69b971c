"""The pods of attempts: how they are built from the definition of an activity, and how their status is read. Pure."""
