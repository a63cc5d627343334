//! Conformance of the engines.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod kill;

use setpoint_store::fault::{FaultStore, Faults};
use setpoint_store::{MemoryStore, conformance};

#[tokio::test]
async fn memory_engine_conforms() {
    conformance::check(async || MemoryStore::default()).await;
}

#[tokio::test(start_paused = true)]
async fn memory_engine_conforms_under_paused_time() {
    conformance::check(async || MemoryStore::default()).await;
}

#[tokio::test]
async fn fault_engine_without_faults_conforms() {
    conformance::check(async || FaultStore::new(MemoryStore::default(), Faults::default(), 1))
        .await;
}

#[tokio::test]
async fn fork_conforms() {
    conformance::check(async || MemoryStore::default().fork()).await;
}

#[tokio::test]
#[should_panic(expected = "the engine breaks the contract")]
async fn suite_catches_an_engine_that_fails() {
    let faults = Faults { unavailable: 0.05, ..Faults::default() };
    conformance::check(async || FaultStore::new(MemoryStore::default(), faults, 3)).await;
}
