"""The tree of steps as text."""

from perdure.view.open_work import LiveState
from perdure.view.tree import tree
from support.view.flow import Flow, plain


def steps(flow: Flow, seen: LiveState | None = None) -> str:
    return plain(tree(flow.run(seen=seen), flow.page(width=90)))
