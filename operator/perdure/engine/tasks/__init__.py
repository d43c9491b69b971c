"""Workflow tasks: how a run is decided by workers outside of this process. Pure, with time as an argument."""
