"""A cluster in memory: API server, kubelet, watches and an event loop, on which the operator runs unchanged.

| module | its job |
| --- | --- |
| `loop` | virtual time |
| `apiserver`, `resources`, `patching`, `selecting` | the API server |
| `kubelet` | pods start, renew their Leases, end as a script says |
| `session`, `watches` | the ports of the operator: requests and watch events |
| `process` | an operator process |

Nothing goes wrong here; `tests/simulated` adds faults.
"""
