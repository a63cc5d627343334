//! Waits for expected states.

use crate::matcher::{self, Matcher};
use crate::{TestEnv, Timeline};
use futures::future::pending;
use kube_client::core::{ApiResource, DynamicObject};
use kube_client::{Api, Resource};
use serde::de::DeserializeOwned;
use std::panic::Location;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The first pause between two polls of a state that no object change reveals.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause between two polls of a wait of less than [`PAUSE_PARTS`] times this.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A longer wait pauses for this part of its time, so that a virtual day takes some hundred polls.
const PAUSE_PARTS: u32 = 20;

/// Notifies of changed objects. A clone has seen what the original has.
#[derive(Debug, Clone)]
pub struct Changes(watch::Receiver<u64>);

impl Changes {
    pub(crate) fn of(timeline: &Timeline) -> Self {
        Self(timeline.changes())
    }

    /// Passes over the changes so far.
    pub fn skip(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits until an object has changed since this was made, and since the last call. Changes in
    /// between are one. Cancel safe.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The environment is gone, and with it all changes.
            pending().await
        }
    }
}

/// Schedules polls: after every change of an object, and at growing intervals.
struct Polls {
    changes: Changes,
    pause: Duration,
    began: Instant,
    end: Instant,
}

impl Polls {
    fn new(timeline: &Timeline, patience: Duration) -> Self {
        let began = Instant::now();
        Self { changes: Changes::of(timeline), pause: PAUSE_MIN, began, end: began + patience }
    }

    /// Waits for the next poll; returns `false` when the time is up.
    async fn next(&mut self) -> bool {
        if Instant::now() >= self.end {
            return false;
        }
        tokio::select! {
            biased;
            () = self.changes.next() => {}
            () = tokio::time::sleep(self.pause) => {
                let max = PAUSE_MAX.max(self.began.elapsed() / PAUSE_PARTS);
                self.pause = (self.pause * 2).min(max);
            }
        }
        true
    }
}

impl TestEnv {
    /// Waits until `look` returns `Some`, and returns the value. Calls it after every change of any
    /// object, and at growing intervals: of at most 2 s in the first 40 s, and then of a twentieth
    /// of the time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let env = setpoint_testenv::TestEnv::start().await.unwrap();
    /// let client = env.client();
    /// let version = env.eventually("the server's version", async || {
    ///     client.apiserver_version().await.ok()
    /// }).await;
    /// assert_eq!(version.major, "1");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If nothing was returned within the environment's
    /// [patience](crate::TestEnvBuilder::patience), or if a manager of the environment ended with
    /// an error meanwhile.
    #[track_caller]
    pub fn eventually<'a, T>(
        &'a self,
        what: &'a str,
        mut look: impl AsyncFnMut() -> Option<T> + 'a,
    ) -> impl Future<Output = T> + 'a {
        let place = Location::caller();
        async move {
            let mut polls = Polls::new(self.timeline(), self.patience());
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                self.check_managers(place);
                if !polls.next().await {
                    panic!("{place}: waited {:?} until {what}", self.patience());
                }
            }
        }
    }

    /// Waits until an object, or its absence, matches. Returns the object as it was then.
    ///
    /// # Panics
    ///
    /// As [`eventually`](Self::eventually); the message has the last state of the object. Also if
    /// the object cannot be read or decoded as a `K`.
    #[track_caller]
    pub fn until<'a, K>(
        &'a self,
        api: &'a Api<K>,
        name: &'a str,
        matcher: Matcher,
    ) -> impl Future<Output = Option<K>> + 'a
    where
        K: Resource + DeserializeOwned,
    {
        let place = Location::caller();
        async move {
            let mut polls = Polls::new(self.timeline(), self.patience());
            loop {
                // The matcher may read fields that `K` does not declare.
                let found = self.raw(api.resource_url(), name, place).await;
                if matcher.is_met(found.as_ref()) {
                    return found.map(|object| {
                        let tree = serde_json::to_value(object).and_then(serde_json::from_value);
                        tree.unwrap_or_else(|error| panic!("{place}: decode {name}: {error}"))
                    });
                }
                self.check_managers(place);
                if !polls.next().await {
                    let shown = matcher::shown(found.as_ref());
                    let patience = self.patience();
                    panic!("{place}: waited {patience:?} until {name} {matcher}\n{shown}");
                }
            }
        }
    }

    /// Waits for an Event with this reason about an object of this name, and returns its message.
    ///
    /// # Panics
    ///
    /// As [`eventually`](Self::eventually).
    #[track_caller]
    pub fn event<'a>(
        &'a self,
        namespace: &'a str,
        about: &'a str,
        reason: &'a str,
    ) -> impl Future<Output = String> + 'a {
        let place = Location::caller();
        async move {
            let what = format!("an event {reason} about {about}");
            let resource = ApiResource {
                group: "events.k8s.io".into(),
                version: "v1".into(),
                api_version: "events.k8s.io/v1".into(),
                kind: "Event".into(),
                plural: "events".into(),
            };
            let events: Api<DynamicObject> =
                Api::namespaced_with(self.client(), namespace, &resource);
            let mut polls = Polls::new(self.timeline(), self.patience());
            loop {
                let list = events.list(&kube_client::api::ListParams::default()).await;
                let list = list.unwrap_or_else(|error| panic!("{place}: list events: {error}"));
                let event = list.items.into_iter().find(|event| {
                    event.data["regarding"]["name"] == *about && event.data["reason"] == *reason
                });
                if let Some(event) = event {
                    return event.data["note"].as_str().unwrap_or_default().to_owned();
                }
                self.check_managers(place);
                if !polls.next().await {
                    panic!("{place}: waited {:?} until {what}", self.patience());
                }
            }
        }
    }

    async fn raw(&self, url: &str, name: &str, place: &Location<'_>) -> Option<DynamicObject> {
        let request = http::Request::get(format!("{url}/{name}")).body(Vec::new());
        let request = request.unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
        match self.client().request(request).await {
            Ok(object) => Some(object),
            Err(kube_client::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{place}: get {name}: {error}"),
        }
    }
}
