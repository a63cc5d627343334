//! Controllers pass the scenario checks while an observer of the store looks at every change.

mod budgets;
mod catalog;
mod cron;
mod defaults;
mod devices;
mod gangs;
mod groups;
mod leftovers;
mod nodes;
pub(crate) mod observer;
mod owners;
mod protection;
mod quotas;
mod roles;
mod scheduler;
mod services;
mod simulated;
