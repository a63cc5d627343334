//! A Kubernetes-compatible API server.

pub mod openapi;
