"""An in-memory cluster: API server, kubelet, watches and an event loop. The operator runs on it unchanged.

| module | purpose |
| --- | --- |
| `loop` | event loops in real and in virtual time |
| `apiserver` | the API server: requests, lists, and tables |
| `store` | the stored objects: their creation, change, deletion, and collection |
| `resources` | the kinds, with the defaults of their CRDs |
| `patches` | JSON patch and merge patch |
| `kubelet` | starts pods, renews their Leases, and ends them as a script defines |
| `process` | an operator process, with its connections and watches |

This cluster has no faults; `tests/simulated` adds them.
"""
