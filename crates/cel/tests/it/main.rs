//! Tests of the crate from outside.

mod cel_go;
mod conformance;
mod cost;
mod laws;
mod limits;
mod reference;
