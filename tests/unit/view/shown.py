"""The tree of steps as text."""

from perdure.view.runs.open_work import LiveState
from perdure.view.runs.tree import tree
from support.view.flow import Flow, plain


def steps(flow: Flow, live: LiveState | None = None) -> str:
    return plain(tree(flow.run(live=live), flow.page(width=90)))
