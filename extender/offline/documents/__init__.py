"""The documents that commands print with `-o json`: their kinds, and a JSON Schema of each.

Start reading at `document_kinds`.
"""
