"""What the service Billing offers: the contract that callers and handlers share. Both namespaces have a copy of this file."""

from dataclasses import dataclass

import nexusrpc

ENDPOINT = "billing"
"""The endpoint in endpoint.yaml. It names the handler's namespace and task queue, so that callers need to know neither."""


@dataclass
class Purchase:
    """What a customer buys."""

    order_id: str
    customer: str
    amount: int


@nexusrpc.service
class Billing:
    """Operations of the namespace that does the billing."""

    quote: nexusrpc.Operation[Purchase, int]
    """The price with tax, immediately."""
    charge: nexusrpc.Operation[Purchase, str]
    """Charges the card with a workflow; returns the receipt."""
