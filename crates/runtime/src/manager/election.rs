//! A manager's election: who stands, and how the manager sees it.

use futures::future::BoxFuture;
use setpoint_object::time::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    election::{ElectionOptions, LeaderElector, LeaderState, Leadership, OptionsError},
    error::BoxError,
    events::EventRecorder,
};

/// A campaign to be run, and whether it is won.
pub(super) struct Election {
    /// Stands for election until the token is cancelled, and then gives the lead up. Ends by itself
    /// only when the lead was lost, or cannot be had.
    pub(super) run:
        Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
    /// Whether this process leads. Once that is no longer so it never is again.
    pub(super) state: watch::Receiver<LeaderState>,
}

impl Election {
    /// A candidate for a Lease, and its view.
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

    /// One that cannot be held: the manager ends with why.
    pub(super) fn impossible(error: OptionsError) -> Self {
        let run = move |_| -> BoxFuture<'static, Result<(), BoxError>> {
            Box::pin(async move { Err(BoxError::from(error)) })
        };
        Self { run: Box::new(run), state: watch::Sender::default().subscribe() }
    }
}
