"""HTTP to the API server and to other extenders: credentials, connections, requests."""
