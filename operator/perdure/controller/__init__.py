"""The imperative shell: watch events wake objects, and one task at a time reconciles each object.

    watch events ─▶ informers ─▶ dispatch ─▶ queue of typed keys ─▶ reconcile ─▶ a run, a Schedule, an Operation, …

What a run does next is decided below: by `engine`, `language`, and `schedule`, which are pure. `runtime` builds the objects. This
package decides what depends on more than one run: which run of a workflow ID may start (`directory`), whether there is room for
it (`capacity`), and which attempts may have a pod (`runs/attempts`).
"""
