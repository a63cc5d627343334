//! Firewalls: a trait, and what implements it.
//!
//! # Theory
//!
//! A back end has a part of the firewall to itself: a table, two chains, or the rules of one
//! priority. [`Backend::replace`] makes that part what a ruleset says, whatever it was before, and
//! does not touch the rest; an empty ruleset removes the part. [`Backend::holds`] looks. Both may
//! be called again at any time, after a crash at any point.
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

/// Why a firewall did not do as asked. Trying again may help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// A program failed.
    #[error("{what}")]
    Program {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: ProgramError,
    },
    /// A program printed something else than it documents.
    #[error("{what}: the output is not understood")]
    Output {
        /// What was tried.
        what: &'static str,
        /// Why it is not understood, if it is not JSON.
        #[source]
        source: Option<serde_json::Error>,
    },
}

/// What a firewall cannot do. Trying again does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{backend} has no {what}")]
pub struct Unsupported {
    /// The back end's name.
    pub backend: &'static str,
    /// What the rule asks for.
    pub what: &'static str,
}

/// A firewall.
pub trait Backend: Send + Sync + 'static {
    /// Its name in reports and on the command line.
    fn name(&self) -> &'static str;

    /// Whether it can do what a rule asks.
    ///
    /// # Errors
    ///
    /// What it cannot do.
    fn check(&self, rule: &Rule) -> Result<(), Unsupported>;

    /// Whether its part is exactly what `ruleset` says.
    fn holds<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>>;

    /// Makes its part what `ruleset` says. Dropping the future may leave it undone or done.
    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>>;

    /// Sends a notice when the firewall may have changed, until that is no longer possible. A
    /// back end that hears of no changes returns at once: the agent looks from time to time anyway.
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
