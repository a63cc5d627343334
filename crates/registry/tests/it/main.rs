//! The registry through its public API, over the memory store.
#![expect(clippy::unwrap_used, reason = "a test stops where it is wrong")]
mod apply;
mod bootstrap;
mod closing;
mod conversion;
mod create;
mod custom;
mod custom_writes;
mod definitions;
mod delete;
mod faults;
mod kind_defaults;
mod kinds;
mod objects;
mod priority;
mod properties;
mod reads;
mod schema_change;
mod server;
mod services;
mod shared;
mod slow;
mod stories;
mod subresources;
mod threads;
mod update;
mod versions;
