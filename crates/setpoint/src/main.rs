//! The `setpoint` program.

fn main() {}
