//! What the crate promises, from outside.

mod defaults;
mod properties;
mod reference;
mod stories;
