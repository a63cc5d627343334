//! The rows of the built-in resources and the objects a fresh control plane holds.
