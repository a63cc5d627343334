//! Watches a Lease between two reads.

use crate::error::chain;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube_client::Api;
use kube_core::{WatchEvent, params::WatchParams};

/// The duration of one watch in seconds. Below kube-client's limit of 295 s, which is below its
/// read time-out.
const WATCH_SECONDS: u32 = 290;

/// A watch of one Lease, opened when it is first polled. It ends at the first failure; the reads go
/// on without it.
pub(super) struct LeaseWatch {
    api: Api<Lease>,
    name: String,
    /// The version after which the watch starts.
    after: String,
    state: State,
}

enum State {
    Closed,
    Open(BoxStream<'static, kube_client::Result<WatchEvent<Lease>>>),
    /// It failed: the next read opens it again.
    Failed,
}

/// A change of the Lease.
#[derive(Debug)]
pub(super) enum Change {
    Changed(Box<Lease>),
    Deleted,
}

impl LeaseWatch {
    pub(super) fn new(api: Api<Lease>, name: String) -> Self {
        Self { api, name, after: String::new(), state: State::Failed }
    }

    /// Called after a read of the Lease at this version: a watch that is not open may start there.
    pub(super) fn arm(&mut self, resource_version: Option<&str>) {
        if matches!(self.state, State::Open(_)) {
            return;
        }
        match resource_version {
            Some(version) => {
                self.after = version.to_owned();
                self.state = State::Closed;
            }
            None => self.state = State::Failed,
        }
    }

    /// The next change; pending without a watch. Cancel safe: an interrupted opening is repeated by
    /// the next call.
    pub(super) async fn next(&mut self) -> Change {
        loop {
            match &mut self.state {
                State::Failed => std::future::pending().await,
                State::Closed => {
                    let params = WatchParams::default()
                        .fields(&format!("metadata.name={}", self.name))
                        .timeout(WATCH_SECONDS);
                    self.state = match self.api.watch(&params, &self.after).await {
                        Ok(stream) => State::Open(stream.boxed()),
                        Err(error) => self.failed(&chain(&error)),
                    };
                }
                State::Open(stream) => match stream.next().await {
                    Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                        return Change::Changed(Box::new(lease));
                    }
                    Some(Ok(WatchEvent::Deleted(_))) => return Change::Deleted,
                    Some(Ok(WatchEvent::Bookmark(_))) => {}
                    Some(Ok(WatchEvent::Error(status))) => {
                        self.state = self.failed(&status.to_string())
                    }
                    Some(Err(error)) => self.state = self.failed(&chain(&error)),
                    None => self.state = State::Failed,
                },
            }
        }
    }

    fn failed(&self, error: &str) -> State {
        tracing::debug!(lease = self.name, error, "the watch of the lease ended: reading goes on");
        State::Failed
    }
}
