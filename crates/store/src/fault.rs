//! An engine that fails on purpose.
