//! A revisioned key-value store: the contract, its conformance suite and the memory engine.

pub mod conformance;
pub mod contract;
pub mod fault;
pub mod memory;

pub use contract::*;
pub use memory::MemoryStore;
