//! What was chosen about a controller, and what holds where nothing was.

use std::{sync::Arc, time::Duration};

use setpoint_object::{GroupKind, GroupVersionKind};

use super::{CATCH_UP_MAX, SYNC_TIMEOUT};
use crate::broken::Broken;
use crate::telemetry::Traces;

/// What one level says about controllers: a controller's own builder, or its manager.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    pub(super) n_workers: Option<usize>,
    pub(super) sync_timeout: Option<Option<Duration>>,
    pub(super) reconcile_timeout: Option<Option<Duration>>,
    pub(super) recovers_panics: Option<bool>,
    pub(super) catch_up: Option<Duration>,
    pub(super) leader_only: Option<bool>,
    pub(super) warm_up: Option<bool>,
    pub(super) attempts_max: Option<Option<u32>>,
    pub(super) traces: Option<Traces>,
}

/// What holds for a manager's controllers where their own builders say nothing.
///
/// Every method is one of [`ControllerBuilder`](crate::ControllerBuilder) of the same name, where
/// its meaning is.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ControllerDefaults {
    chosen: Chosen,
    /// By the kind that a controller is for.
    n_workers_of: Vec<(GroupKind, usize)>,
    broken: Broken,
}

impl ControllerDefaults {
    /// Nothing chosen: what the builder's methods call their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys of each controller are reconciled at the same time.
    pub fn concurrency(mut self, n_workers: usize) -> Self {
        self.chosen.n_workers = Some(n_workers);
        self
    }

    /// The same for controllers that are [`for_`](crate::ControllerBuilder::for_) this kind; goes
    /// before [`concurrency`](Self::concurrency). The last of several counts.
    pub fn concurrency_of(mut self, kind: GroupKind, n_workers: usize) -> Self {
        self.n_workers_of.push((kind, n_workers));
        self
    }

    /// How long the sources of each controller may take to sync; `None` is for ever.
    pub fn sync_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.chosen.sync_timeout = Some(timeout);
        self
    }

    /// How long one pass may take; `None` is for ever.
    pub fn reconcile_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.chosen.reconcile_timeout = Some(timeout);
        self
    }

    /// Whether a pass that panics is an error like another.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.chosen.recovers_panics = Some(recovers);
        self
    }

    /// How long a key rests after a pass, at most, until the caches show what the pass wrote.
    pub fn catch_up(mut self, max: Duration) -> Self {
        self.chosen.catch_up = Some(max);
        self
    }

    /// Whether controllers reconcile only on the leader.
    pub fn leader_only(mut self, leader_only: bool) -> Self {
        self.chosen.leader_only = Some(leader_only);
        self
    }

    /// Whether controllers sync their sources before leadership.
    pub fn warm_up(mut self, warm_up: bool) -> Self {
        self.chosen.warm_up = Some(warm_up);
        self
    }

    /// Breaks a rule. The last one counts.
    #[cfg(feature = "broken-rules")]
    pub fn broken(mut self, rule: crate::broken::Rule) -> Self {
        self.broken = Broken::of(rule);
        self
    }

    /// After how many failures in a row a key is given up; `None` is never.
    pub fn max_attempts(mut self, attempts_max: Option<u32>) -> Self {
        self.chosen.attempts_max = Some(attempts_max);
        self
    }

    /// Where passes are traced to.
    #[cfg(feature = "otel")]
    pub fn traces(mut self, traces: Traces) -> Self {
        self.chosen.traces = Some(traces);
        self
    }
}

/// What holds for one controller.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) name: Arc<str>,
    /// The kind that it is for.
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) n_workers: usize,
    pub(super) sync_timeout: Option<Duration>,
    pub(super) reconcile_timeout: Option<Duration>,
    pub(super) recovers_panics: bool,
    pub(super) catch_up: Duration,
    pub(super) leader_only: bool,
    pub(super) warm_up: bool,
    pub(super) attempts_max: Option<u32>,
    pub(super) traces: Option<Traces>,
    pub(super) broken: Broken,
}

impl Options {
    /// The controller's own choice first, then its manager's, then the documented default; of the
    /// number of workers, the manager's choice for the kind goes before its choice for all (5.1).
    pub(super) fn resolve(
        name: Arc<str>,
        kind: Option<GroupVersionKind>,
        own: Chosen,
        defaults: &ControllerDefaults,
    ) -> Self {
        let all = &defaults.chosen;
        let of_kind = kind.as_ref().and_then(|kind| {
            let kind = kind.group_kind();
            defaults.n_workers_of.iter().rev().find(|(of, _)| *of == kind).map(|(_, n)| *n)
        });
        let n_workers = own.n_workers.or(of_kind).or(all.n_workers).unwrap_or(1).max(1);
        Self {
            name,
            kind,
            n_workers,
            sync_timeout: own.sync_timeout.or(all.sync_timeout).unwrap_or(Some(SYNC_TIMEOUT)),
            reconcile_timeout: own.reconcile_timeout.or(all.reconcile_timeout).flatten(),
            recovers_panics: own.recovers_panics.or(all.recovers_panics).unwrap_or(true),
            catch_up: own.catch_up.or(all.catch_up).unwrap_or(CATCH_UP_MAX),
            leader_only: own.leader_only.or(all.leader_only).unwrap_or(true),
            warm_up: own.warm_up.or(all.warm_up).unwrap_or(true),
            attempts_max: own.attempts_max.or(all.attempts_max).flatten(),
            traces: own.traces.or_else(|| all.traces.clone()),
            broken: defaults.broken,
        }
    }
}
