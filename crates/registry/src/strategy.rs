//! What create, update and status writes may change, per kind.
