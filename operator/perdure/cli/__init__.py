"""The `perdure` command, also installed as `kubectl-perdure`."""
