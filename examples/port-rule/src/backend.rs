//! Firewalls: a trait and its implementations.
//!
//! # Theory
//!
//! A back end owns a part of the firewall: a table, two chains, or the rules of one priority.
//! [`Backend::replace`] replaces that part by a ruleset and does not touch the rest; an empty
//! ruleset removes the part. [`Backend::holds`] compares. Both are idempotent, also after a crash
//! at any point.
//!
//! | back end | its part | a change |
//! |---|---|---|
//! | [`Nftables`] | the table `inet port_rule` | one transaction |
//! | [`Iptables`] | the chains `PORT-RULE-IN` and `PORT-RULE-OUT` | one transaction per address family |
//! | [`Firewalld`] | the rich rules of one priority, in all zones | rule by rule, new ones first |

mod firewalld;
mod iptables;
mod nftables;
mod program;

pub use firewalld::Firewalld;
pub use iptables::Iptables;
pub use nftables::Nftables;
pub use program::{Program, ProgramError};

use crate::ruleset::{Rule, Ruleset};
use futures::future::BoxFuture;
use tokio::sync::mpsc;

/// Why a call of a firewall failed. A retry may succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// A program failed.
    #[error("{what}")]
    Program {
        /// The operation that failed.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: ProgramError,
    },
    /// The output of a program is not in its documented format.
    #[error("{what}: the output is not understood")]
    Output {
        /// The operation that failed.
        what: &'static str,
        /// The parser's error, if the output is not JSON.
        #[source]
        source: Option<serde_json::Error>,
    },
}

/// A rule that a firewall does not support. A retry does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{backend} has no {what}")]
pub struct Unsupported {
    /// The back end's name.
    pub backend: &'static str,
    /// The unsupported part of the rule.
    pub what: &'static str,
}

/// A firewall.
pub trait Backend: Send + Sync + 'static {
    /// Its name in reports and on the command line.
    fn name(&self) -> &'static str;

    /// Checks that it supports a rule.
    ///
    /// # Errors
    ///
    /// It does not support a part of the rule.
    fn check(&self, rule: &Rule) -> Result<(), Unsupported>;

    /// Whether its part equals `ruleset`.
    fn holds<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>>;

    /// Replaces its part by `ruleset`. Dropping the future may leave the change undone or done.
    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>>;

    /// Sends a notice when the firewall may have changed, until that is no longer possible. A back
    /// end without such events returns at once: the agent also checks periodically.
    fn notices<'a>(
        &'a self,
        _changed: mpsc::Sender<()>,
    ) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async { Ok(()) })
    }
}

impl<B: Backend + ?Sized> Backend for std::sync::Arc<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn check(&self, rule: &Rule) -> Result<(), Unsupported> {
        (**self).check(rule)
    }

    fn holds<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>> {
        (**self).holds(ruleset)
    }

    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>> {
        (**self).replace(ruleset)
    }

    fn notices<'a>(&'a self, changed: mpsc::Sender<()>) -> BoxFuture<'a, Result<(), BackendError>> {
        (**self).notices(changed)
    }
}
