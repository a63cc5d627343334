//! What the crate promises, from outside.

mod properties;
mod reference;
