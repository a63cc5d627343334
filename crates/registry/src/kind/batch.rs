//! Kinds of `batch`.
pub(super) mod cron_job;
pub(super) mod job;
