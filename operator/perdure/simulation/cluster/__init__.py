"""An in-memory cluster: API server, kubelet, watches and an event loop. The operator runs on it unchanged.

| module | purpose |
| --- | --- |
| `loop` | virtual time |
| `apiserver`, `selecting` | the API server: requests and lists |
| `object_store`, `resources`, `patching`, `garbage` | creation, change, deletion and collection of objects |
| `storage` | the stored objects |
| `kubelet` | starts pods, renews their Leases, and ends them as a script defines |
| `session`, `watches` | the ports of the operator: requests and watch events |
| `process` | an operator process |

This cluster has no faults; `tests/simulated` adds them.
"""
