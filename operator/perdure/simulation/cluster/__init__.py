"""A cluster in memory: API server, kubelet, watches and an event loop, on which the operator runs unchanged.

| module | its job |
| --- | --- |
| `loop` | virtual time |
| `apiserver`, `selecting` | the API server: requests and lists |
| `registry`, `resources`, `patching`, `garbage` | how objects are created, changed, deleted and collected |
| `storage` | what is stored |
| `kubelet` | pods start, renew their Leases, end as a script says |
| `session`, `watches` | the ports of the operator: requests and watch events |
| `process` | an operator process |

Nothing goes wrong here; `tests/simulated` adds faults.
"""
