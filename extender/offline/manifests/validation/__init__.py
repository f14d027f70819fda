"""Checks what the API server checks when a pod or an object with a pod template is created.

`schema` has already found unknown fields and wrong types; `admission` checks what depends on other objects. Every
function yields faults as text for people, "path: what is wrong". Start at `controllers`.

Source: upstream pkg/apis/{core,apps,batch,resource,scheduling}/validation.
"""
