"""The stock control plane, Kubernetes v1.37.1, built from source and run on loopback for the tests."""
