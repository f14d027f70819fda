"""Reads manifests and snapshots, and fills in what an API server would.

They come from files, directories, standard input or dicts; the result is objects, or one line on what is wrong and
where. A snapshot is read leniently, because an API server wrote it (`files`, `objects`). A pod that a user writes is
checked against every field of the API (`schema`), taken out of its Deployment or Job (`templates`) and completed as
admission would (`admission`). `snapshot` writes snapshots. Start reading at `files` and `templates`.
"""
