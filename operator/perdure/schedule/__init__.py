"""When a Schedule starts runs, and what it does when they overlap, fail or were missed. Pure: time is an argument.

``times`` answers when (over ``calendar``, ``cron``, ``fields`` and ``zones``); ``step`` decides what to do about it (over
``state``). Nothing here reads a clock or speaks to the API server.
"""
