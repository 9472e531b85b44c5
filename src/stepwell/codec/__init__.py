"""Bytes: encode typed values as JSON and decode them again.

`codec` is the entry point. `class_kinds`, `exceptions`, `standard_values`, `numpy_arrays` and
`pickles` each know how one family of types is written; `registry` and `stored_names` decide which
class a stored name means; `classes` upgrades values that an older class definition wrote.
"""
