//! A declarative control-plane kit.
