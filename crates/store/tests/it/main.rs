//! The engines against the contract.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod kill;

use setpoint_store::fault::{FaultStore, Faults};
use setpoint_store::{MemoryStore, conformance};

#[tokio::test]
async fn memory_engine_keeps_the_contract() {
    conformance::check(async || MemoryStore::default()).await;
}

#[tokio::test(start_paused = true)]
async fn memory_engine_keeps_the_contract_while_time_stands_still() {
    conformance::check(async || MemoryStore::default()).await;
}

#[tokio::test]
async fn fault_engine_without_faults_keeps_the_contract() {
    conformance::check(async || FaultStore::new(MemoryStore::default(), Faults::default(), 1))
        .await;
}

#[tokio::test]
async fn fork_keeps_the_contract() {
    conformance::check(async || MemoryStore::default().fork()).await;
}

#[tokio::test]
#[should_panic(expected = "the engine breaks the contract")]
async fn suite_catches_an_engine_that_fails() {
    let faults = Faults { unavailable: 0.05, ..Faults::default() };
    conformance::check(async || FaultStore::new(MemoryStore::default(), faults, 3)).await;
}
