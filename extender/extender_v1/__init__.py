"""The payloads of k8s.io/kube-scheduler/extender/v1: types, decoding, encoding, and the caller's side."""
