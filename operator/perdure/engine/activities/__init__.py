"""Open activities during a step: what workers, pods and clients report about their attempts, and what follows from it."""
