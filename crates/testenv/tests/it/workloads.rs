//! The workload controllers pass the scenario checks: never more pods than the surge permits, never
//! fewer available ones than permitted, and always the same end.

pub(crate) mod cluster;
mod conditions;
mod daemon_set;
mod deployment;
mod foreign;
mod replica_set;
mod stateful_set;
