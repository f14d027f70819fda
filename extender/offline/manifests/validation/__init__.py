"""Checks what the API server checks when a pod or an object with a pod template is created.

Unknown fields and wrong types are found before, by `schema`; what depends on other objects in the cluster is checked by
`admission`. Every function yields faults as text for people, "path: what is wrong". Start at `controllers`.

Source: upstream pkg/apis/{core,apps,batch,resource,scheduling}/validation.
"""
