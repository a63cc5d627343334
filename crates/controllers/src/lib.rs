//! The built-in controllers of a control plane.
