"""The evaluation of conditions: which patterns match a text, and whether a filter holds.

Nothing here knows about queues.
"""
