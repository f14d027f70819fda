"""The API server: requests, watches, leader election and writes. The only room that imports `kubernetes`."""
