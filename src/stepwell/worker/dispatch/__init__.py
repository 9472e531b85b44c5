"""Dispatchers: they make a worker look at the store before its second is over.

Each dispatcher is one module. A hint says nothing but "look": which runs are ready, and who gets
them, is decided by the store.
"""
