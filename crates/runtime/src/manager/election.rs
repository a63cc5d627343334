//! A manager's election.

use futures::future::BoxFuture;
use setpoint_object::time::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    election::{ElectionOptions, LeaderElector, LeaderState, Leadership, OptionsError},
    error::BoxError,
    events::EventRecorder,
};

/// An election to run, and its state.
pub(super) struct Election {
    /// Runs for election until the token is cancelled, and then releases the lease. Returns by
    /// itself only when the lease was lost or cannot be acquired.
    pub(super) run:
        Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
    /// Whether this process leads. Once lost, never again.
    pub(super) state: watch::Receiver<LeaderState>,
}

impl Election {
    /// A candidate for a Lease, and the view of it.
    pub(super) fn new(
        client: kube_client::Client,
        clock: Clock,
        recorder: EventRecorder,
        options: ElectionOptions,
    ) -> Result<(Self, Leadership), OptionsError> {
        let elector = LeaderElector::new(client, clock, options)?.recorder(recorder);
        let leadership = elector.leadership();
        let state = leadership.watch();
        let run = move |stop| -> BoxFuture<'static, Result<(), BoxError>> {
            Box::pin(async move { elector.run(stop).await.map_err(BoxError::from) })
        };
        Ok((Self { run: Box::new(run), state }, leadership))
    }

    /// An election with invalid options: running it fails with `error`.
    pub(super) fn impossible(error: OptionsError) -> Self {
        let run = move |_| -> BoxFuture<'static, Result<(), BoxError>> {
            Box::pin(async move { Err(BoxError::from(error)) })
        };
        Self { run: Box::new(run), state: watch::Sender::default().subscribe() }
    }
}
