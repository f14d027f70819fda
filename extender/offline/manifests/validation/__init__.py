"""Checks what scheduling reads of a new pod, pod template, group or claim, as the API server does.

`schema` has already found unknown fields and wrong types; `admission` checks what depends on other objects. Fields that
no placement depends on, such as probes, are not checked: `kubectl apply --dry-run=server` does that. Every function
yields faults as text for people, "path: what is wrong". Start at `structure`.

Source: upstream pkg/apis/{core,apps,batch,resource,scheduling}/validation.
"""
