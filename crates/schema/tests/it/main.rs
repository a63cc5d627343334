//! What the crate promises, from outside.

mod patches;
mod properties;
mod reference;
