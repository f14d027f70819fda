"""Objects as people have them, made into the model's values, with what an API server would fill in.

In come files, folders, gzip, standard input and dicts; out come objects, or one line that says what is wrong and where.
A snapshot is read leniently, for an API server wrote it (`files`, `objects`). A pod that a user writes is
held against every field of the API (`schema`), taken out of its Deployment or Job (`templates`) and admitted
(`admission`). `fields.json` is made by tests/offline/manifests/api_fields.py. Begin reading at `files` and `templates`.
"""
