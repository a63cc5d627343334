//! A Kubernetes-compatible API server.
