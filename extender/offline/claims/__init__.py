"""The claims of pods, as the controllers beside the API server make them and take them away.

In: a ClusterState that may be changed, and a pod. `making` makes claims of templates as a pod is made; `using` reserves
them as it is placed, and frees them when it goes. Nothing is ever written to a cluster.
"""
