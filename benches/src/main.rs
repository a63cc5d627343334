//! What is measured.

fn main() {}
